/* What the files of nats_faults and nats_delivery_faults share. */
#ifndef QUIPU_CONTRACT_NATS_FAULTS_H
#define QUIPU_CONTRACT_NATS_FAULTS_H

#include "nats_fixture.h"

/* The tests of nats_stream_faults.c. Returns how many have failed. */
int nats_stream_tests(void);

/* The tests of nats_given_up_faults.c. Returns how many have failed. */
int nats_given_up_tests(void);

/* The tests of nats_loss_faults.c. Returns how many have failed. */
int nats_loss_tests(void);

/* Publishes what the bus must refuse by itself: nobody waits for the deadline. */
void nats_faults_refuse_at_once(struct bus_fixture *fixture);

#endif

/* The groups of tests that claim_contract.c runs besides its own. */
#ifndef QUIPU_CONTRACT_CLAIM_CONTRACT_H
#define QUIPU_CONTRACT_CLAIM_CONTRACT_H

#include "claim_fixture.h"

/* Each returns how many have failed. */
int claim_relay_tests(const struct subject *subject, const char *name);
int claim_work_tests(const struct subject *subject, const char *name);
int claim_outbox_tests(const struct subject *subject, const char *name);

#endif

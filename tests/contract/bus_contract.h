/* The groups of tests that bus_contract.c runs besides its own. */
#ifndef QUIPU_CONTRACT_BUS_CONTRACT_H
#define QUIPU_CONTRACT_BUS_CONTRACT_H

/* Each returns how many have failed. */
int bus_group_tests(void);
int bus_delivery_tests(void);

#endif

/* What ports/entitlement_repository.h promises is tested in two files. */
#ifndef QUIPU_CONTRACT_ENTITLEMENT_CONTRACT_H
#define QUIPU_CONTRACT_ENTITLEMENT_CONTRACT_H

/* The tests of entitlement_source_contract.c. Returns how many have failed. */
int entitlement_source_tests(void);

#endif

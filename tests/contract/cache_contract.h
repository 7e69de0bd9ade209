/* The groups of tests that cache_contract.c runs besides its own. */
#ifndef QUIPU_CONTRACT_CACHE_CONTRACT_H
#define QUIPU_CONTRACT_CACHE_CONTRACT_H

/* Each returns how many have failed. */
int cache_counter_tests(void);
int cache_counter_batch_tests(void);
int cache_counter_rule_tests(void);

#endif

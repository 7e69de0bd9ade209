/*
 * How much work the tests with random cases do. QUIPU_EFFORT=full is for a long run; without it
 * they are quick: fewer cases, of the same kinds. Every case has a seed of its own, the same in
 * every run, so that no test passes or fails by luck.
 */
#ifndef QUIPU_TESTS_EFFORT_H
#define QUIPU_TESTS_EFFORT_H

#include <stddef.h>
#include <stdint.h>

/* `full` if QUIPU_EFFORT is "full", `quick` if it is "quick" or not set. Ends the program if it is
 * anything else. */
size_t effort(size_t quick, size_t full);

/* A random case begins with this seed. The case before it, if any, has passed. */
void seed_begin(uint64_t seed);

/* All cases of a test have passed. */
void seeds_end(void);

/* Runs a case for each seed from 1 to effort(quick, full). If QUIPU_SEED is set, all cases have
 * that seed: one that depends on how threads take turns may fail only now and then. */
void seeds_run(size_t quick, size_t full, void (*run)(uint64_t seed));

/* The teardown of a test with random cases: names the seed of the case that failed. A case that
 * ends the program, by abort() or a report of a sanitizer, names it too. */
int seed_report(void **state);

#define cmocka_random_test(test) cmocka_unit_test_teardown(test, seed_report)

#endif

/* The part of test_stream that is about slow readers and about how streams end. */
#ifndef QUIPU_TESTS_STREAM_LIFE_H
#define QUIPU_TESTS_STREAM_LIFE_H

/* Returns how many tests failed. */
int run_stream_life_tests(void);

#endif

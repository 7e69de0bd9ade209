/*
 * Functions that wait for a condition variable until a time on the monotonic clock
 * (clock_steady_ns()), so that a change of the wall clock neither shortens nor prolongs the wait.
 */
#ifndef QUIPU_BASE_STEADY_H
#define QUIPU_BASE_STEADY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Initialises a condition variable for steady_wait_until(). pthread_cond_destroy() releases it. */
void steady_cond_init(pthread_cond_t *condition);

/*
 * Releases `lock`, which the caller holds, waits until the condition is signalled or until
 * monotonic time `until_ns`, and takes the lock again. If `until_ns` is INT64_MAX, the wait has no
 * limit. Returns false if `until_ns` has come. Otherwise returns true, perhaps after a spurious
 * wake-up. So call this function in a loop that checks the condition.
 */
bool steady_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns);

/* Returns the monotonic time `ns` nanoseconds from now, but at most INT64_MAX. */
int64_t steady_in(int64_t ns);

/*
 * Returns how many milliseconds are left until monotonic time `until_ns`, for functions that take a
 * timeout. The number is rounded up, so that the caller does not wake too early; it is 0 if the
 * time has come, and never more than `most_ms`.
 */
int steady_ms_until(int64_t until_ns, int most_ms);

#endif

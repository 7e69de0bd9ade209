/*
 * Waiting for what must happen. A test never measures how fast something was by these: the deadline
 * is only there to end a hang, and is so generous that a machine with other work reaches every
 * event long before it.
 */
#ifndef QUIPU_TESTS_WAITING_H
#define QUIPU_TESTS_WAITING_H

#include <stdbool.h>
#include <stdint.h>

#define HANG_S 120
#define HANG_MS (HANG_S * INT64_C(1000))
#define HANG_NS (HANG_MS * INT64_C(1000000))

/* A deadline HANG_S from now, in the steady clock's nanoseconds. */
int64_t hang_deadline_ns(void);

/* Looks every few milliseconds until happened(context) is true. Fails the test, naming `what`, at
 * the deadline. */
void wait_until(bool (*happened)(void *context), void *context, const char *what);

/* Lets other threads and processes go on for a few milliseconds, for loops that wait by
 * themselves. */
void wait_a_moment(void);

/* The same without a function: waits until the condition, evaluated again and again, is true. */
#define WAIT_UNTIL(condition)                                                                      \
	do {                                                                                       \
		int64_t until_ns_ = hang_deadline_ns();                                            \
                                                                                                   \
		while (!(condition))                                                               \
			wait_on(until_ns_, #condition);                                            \
	} while (0)

/* One round of WAIT_UNTIL. */
void wait_on(int64_t deadline_ns, const char *what);

/* A deadline for calls that something else must end: nobody ever waits for it to pass, so a call
 * that returns was not ended by it. */
#define NEVER_MS (3600 * INT64_C(1000))

/* The steady clock in milliseconds, and a deadline that many milliseconds from now. */
int64_t steady_ms(void);
int64_t in_ms(int64_t ms);

/* For lower bounds, and to leave time for what must not happen; not to wait for an event. */
void nap_ms(int64_t ms);

#endif

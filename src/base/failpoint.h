/*
 * Failpoints are named points in the code where a test build kills or stops itself, so that a test
 * can crash the program at an exact moment:
 * QUIPU_FAILPOINTS=commit.before=kill@3,commit.after=stop. `kill` sends SIGKILL to the process
 * itself, `stop` sends SIGSTOP. With @N this happens the Nth time that a thread passes the point;
 * without @N, the first time. In release builds FAILPOINT() compiles to nothing.
 *
 * `hold` holds the thread until the test closes the FIFO that QUIPU_FAILPOINT_GATE names. The test
 * cannot open the FIFO for writing before the thread has reached the point. Other threads keep
 * running.
 *
 * `off` makes IS_SWITCHED_OFF() true: QUIPU_FAILPOINTS=counters.look=off. With `off` a test can
 * disable one of two mechanisms that have the same effect, or keep a thread from doing its work. In
 * release builds IS_SWITCHED_OFF() is always false.
 *
 * Thread-safe. If N is not a number, the process aborts.
 */
#ifndef QUIPU_BASE_FAILPOINT_H
#define QUIPU_BASE_FAILPOINT_H

#include <stdbool.h>

#ifdef QUIPU_TEST_BUILD
void failpoint_pass(const char *name);
bool failpoint_is_off(const char *name);
#define FAILPOINT(name) failpoint_pass(name)
#define IS_SWITCHED_OFF(name) failpoint_is_off(name)
#else
#define FAILPOINT(name) ((void)0)
#define IS_SWITCHED_OFF(name) false
#endif

#endif

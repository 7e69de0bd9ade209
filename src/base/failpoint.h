/*
 * Failpoints are named points in the code where a test build kills or stops itself, so that a test
 * can crash the program at an exact moment:
 * QUIPU_FAILPOINTS=commit.before=kill@3,commit.after=stop. `kill` sends SIGKILL to the process
 * itself, `stop` sends SIGSTOP. With @N the signal is sent when the point is passed for the Nth
 * time, by whichever thread; without @N, the first time. In release builds FAILPOINT() compiles to
 * nothing.
 *
 * `hold` makes the thread that passes the point wait until the test closes the FIFO that
 * QUIPU_FAILPOINT_GATE names. The test cannot open the FIFO for writing before the thread has
 * reached the point, so once the FIFO is open, the test knows that the thread waits. Other threads
 * keep running.
 *
 * `off` makes IS_SWITCHED_OFF() true for one name: QUIPU_FAILPOINTS=counters.look=off. A test uses
 * `off` to keep a thread from doing its work, or to disable one of two mechanisms that have the
 * same effect, so that it can test the other mechanism alone. In release builds IS_SWITCHED_OFF()
 * is always false.
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

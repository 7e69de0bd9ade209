/*
 * Failpoints are named places at which a test build kills or stops itself, so that a crash test
 * hits exactly the moment it wants: QUIPU_FAILPOINTS=commit.before=kill@3,commit.after=stop. `kill`
 * sends SIGKILL to the process itself, `stop` sends SIGSTOP; @N acts on the Nth pass, and without
 * it the first pass counts. In release builds FAILPOINT() compiles to nothing.
 *
 * Where two mechanisms have the same effect, a test of one can switch the other off; and what a
 * thread would do at once can be kept from happening: QUIPU_FAILPOINTS=counters.look=off. In
 * release builds IS_SWITCHED_OFF() is false.
 *
 * Any thread. An @N that is not a number aborts the process.
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

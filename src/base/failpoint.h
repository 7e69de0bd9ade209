/*
 * Named points at which a test build can be told to die or to stop, so that crash tests hit the
 * moment they mean: QUIPU_FAILPOINTS=commit.before=kill@3,commit.after=stop. `kill` is kill -9 of
 * the process itself, `stop` is SIGSTOP; @N is the Nth passing, the first if left out. In release
 * builds FAILPOINT() is nothing.
 *
 * Where two mechanisms lead to the same end, a test of one can switch off the other:
 * QUIPU_FAILPOINTS=counters.look=off. In release builds IS_SWITCHED_OFF() is false.
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

/*
 * Checks and creates traceparents of W3C Trace Context: 00-<32 hex digits>-<16 hex digits>-<2 hex
 * digits>. Values from outside go into logs, stores and messages, so they are checked where they
 * arrive. Pure, except for trace_new().
 */
#ifndef QUIPU_BASE_TRACE_H
#define QUIPU_BASE_TRACE_H

#include <stdbool.h>

#include "base/slice.h"

#define TRACEPARENT_LEN 55

/* Returns whether the value is well formed: lower-case digits, no id that is all zeros, and a
 * version other than ff. */
bool trace_is_valid(struct slice traceparent);

/* Writes a new traceparent with random ids, and a NUL. */
void trace_new(char out[TRACEPARENT_LEN + 1]);

#endif

/*
 * Parses JSON strictly, on top of jansson. To write JSON, see buffer.h. Thread-safe.
 *
 * A number that is too large does not make the whole text invalid. An integer that int64 cannot
 * hold becomes a real, and a number that is too large for a double becomes JSON_HUGE or -JSON_HUGE.
 * Code that expects an integer then reports the error.
 */
#ifndef QUIPU_BASE_JSON_H
#define QUIPU_BASE_JSON_H

#include <jansson.h>

#include "base/slice.h"
#include "base/status.h"

#define JSON_DEPTH_MAX 32
#define JSON_WHY_SIZE 256

/* The absolute value that replaces a number too large for a double. */
#define JSON_HUGE 1e308

/*
 * Parses `text`, which must be one object without duplicate members, NUL, lone surrogates or
 * trailing bytes, nested at most JSON_DEPTH_MAX deep. The caller releases the object with
 * json_decref(). Returns NULL on failure and writes the reason to `why`, which has room for
 * JSON_WHY_SIZE bytes.
 */
QP_MUST_CHECK json_t *json_parse_object(struct slice text, char *why);

/*
 * Parses an event from a broker. Works like json_parse_object(), but is less strict, because the
 * event may have members that this program does not read. The event may be nested as deep as
 * jansson allows (2048), may have \u0000 in strings, and may have duplicate members, of which the
 * last counts.
 */
QP_MUST_CHECK json_t *json_parse_event(struct slice text, char *why);

#endif

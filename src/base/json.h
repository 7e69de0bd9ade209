/*
 * Parses JSON strictly, on top of jansson. To write JSON, see buffer.h. Any thread.
 *
 * No number makes the whole text invalid. One that int64 or a double cannot hold becomes a real
 * (see JSON_HUGE), and the code that wants an integer there reports the error.
 */
#ifndef QUIPU_BASE_JSON_H
#define QUIPU_BASE_JSON_H

#include <jansson.h>

#include "base/slice.h"
#include "base/status.h"

#define JSON_DEPTH_MAX 32
#define JSON_WHY_SIZE 256

/* What a number becomes that is too large for a double, with its sign. */
#define JSON_HUGE 1e308

/*
 * Parses `text`, which must be one object without duplicate keys, NUL, lone surrogates or trailing
 * bytes, nested at most JSON_DEPTH_MAX deep. The caller releases the object with json_decref().
 * Returns NULL on failure and writes the reason to `why`, which has room for JSON_WHY_SIZE bytes.
 */
QP_MUST_CHECK json_t *json_parse_object(struct slice text, char *why);

/*
 * The same for an event from a broker, whose members nobody here reads may hold anything: it may
 * nest as deep as jansson reads (2048), and have \u0000 in strings and members that are there
 * twice, of which the last counts.
 */
QP_MUST_CHECK json_t *json_parse_event(struct slice text, char *why);

#endif

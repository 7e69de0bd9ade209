/* Parses JSON strictly, on top of jansson. To write JSON, see buffer.h. Any thread. */
#ifndef QUIPU_BASE_JSON_H
#define QUIPU_BASE_JSON_H

#include <jansson.h>

#include "base/slice.h"
#include "base/status.h"

#define JSON_DEPTH_MAX 32

/*
 * Parses `text`, which must be one object without duplicate keys, NUL, lone surrogates or trailing
 * bytes, nested at most JSON_DEPTH_MAX deep, with all integers within int64. The caller releases
 * the object with json_decref(). Returns NULL on failure and writes the reason to `why`, which has
 * room for JSON_WHY_SIZE bytes.
 */
#define JSON_WHY_SIZE 256
QP_MUST_CHECK json_t *json_parse_object(struct slice text, char *why);

#endif

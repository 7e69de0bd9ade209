/* Strict JSON in, on top of jansson. Answers are written with buffer.h instead. */
#ifndef QUIPU_BASE_JSON_H
#define QUIPU_BASE_JSON_H

#include <jansson.h>

#include "base/slice.h"
#include "base/status.h"

#define JSON_DEPTH_MAX 32

/*
 * Parses `text`, which must be one object without duplicate keys, NUL, lone surrogates or trailing
 * bytes, at most JSON_DEPTH_MAX deep, its integers within int64. The caller calls json_decref().
 * NULL: `why`, of at least JSON_WHY_SIZE bytes, says what is wrong.
 */
#define JSON_WHY_SIZE 256
QP_MUST_CHECK json_t *json_parse_object(struct slice text, char *why);

#endif

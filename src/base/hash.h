/*
 * SipHash-1-3 with a key drawn at start, so that nobody outside can choose ids that all land in one
 * lane or one bucket.
 */
#ifndef QUIPU_BASE_HASH_H
#define QUIPU_BASE_HASH_H

#include <stdint.h>

#include "base/slice.h"

/* Draws the process's key. Call once, before any thread starts. */
void hash_seed(void);

/* Any thread. The same bytes give the same number for the life of the process. */
uint64_t hash_bytes(struct slice bytes);

#endif

/*
 * Hashes bytes with SipHash-1-3 and a random secret per process, so that no client can choose ids
 * that all land in one lane or one bucket.
 */
#ifndef QUIPU_BASE_HASH_H
#define QUIPU_BASE_HASH_H

#include <stdint.h>

#include "base/slice.h"

/* Chooses the secret of this process. Call it once, before any thread starts. */
void hash_seed(void);

/* Thread-safe. Equal bytes have the same hash for the life of the process. */
uint64_t hash_bytes(struct slice bytes);

#endif

/*
 * Randomness. random_bytes() is the kernel's; struct dice is a small fast generator for jitter and
 * request ids, and, seeded with a fixed number, for tests that must repeat.
 */
#ifndef QUIPU_BASE_RANDOM_H
#define QUIPU_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Fills `out` from the kernel. Any thread. Aborts when the kernel has none. */
void random_bytes(void *out, size_t len);

/* One per thread; no lock. */
struct dice {
	uint64_t state;
};

/* Seeds from the kernel. */
void dice_init(struct dice *dice);

/* The next 64 bits. */
uint64_t dice_next(struct dice *dice);

/* A number from 0 to below `bound`, which is above 0. */
uint64_t dice_below(struct dice *dice, uint64_t bound);

/* 16 random bytes as 32 hex digits and a NUL. */
void dice_hex_id(struct dice *dice, char out[33]);

#endif

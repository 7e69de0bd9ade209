/*
 * Random numbers. random_bytes() reads from the kernel and is fit for secrets. struct dice is a
 * small, fast generator for jitter and request ids; tests seed it with a fixed number to repeat a
 * run.
 */
#ifndef QUIPU_BASE_RANDOM_H
#define QUIPU_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Fills `out` with random bytes from the kernel. Thread-safe. Aborts if the kernel returns an
 * error. */
void random_bytes(void *out, size_t len);

/* A random number generator. It has no lock, so each thread needs dice of its own. */
struct dice {
	uint64_t state;
};

/* Seeds the dice from the kernel. */
void dice_init(struct dice *dice);

/* Returns the next 64 bits. */
uint64_t dice_next(struct dice *dice);

/* Returns a number of at least 0 and less than `bound`, which must be above 0. */
uint64_t dice_below(struct dice *dice, uint64_t bound);

/* Writes 16 random bytes as 32 hex digits and a NUL. */
void dice_hex_id(struct dice *dice, char out[33]);

#endif

/*
 * Counts bad tokens by the address that sent them. A token is bad if the server checked its
 * signature and then refused the token. The signature may even have been right, for example if the
 * token had expired. Checking a signature takes 0.1 ms of a loop's time, so an address may send
 * only 100 bad tokens per second. Once it has sent them, its further tokens are refused without a
 * check for the rest of the second, except tokens that are known to be valid.
 *
 * Addresses whose hashes agree in the last 12 bits share a count. Thread-safe.
 */
#ifndef QUIPU_ACCESS_BAD_TOKENS_H
#define QUIPU_ACCESS_BAD_TOKENS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BAD_TOKENS_PER_SECOND 100
#define BAD_TOKENS_SLOTS 4096

/* A struct that is all zeros is ready for use: no bad token has arrived yet. */
struct bad_tokens {
	_Atomic uint64_t
		slots[BAD_TOKENS_SLOTS]; /* the second in the upper half, the count in the lower */
};

/* Counts a bad token that came from `address` (a hash) at the monotonic time `now_ns`. */
void bad_tokens_add(struct bad_tokens *tokens, uint64_t address, int64_t now_ns);

/* Returns whether the address has sent too many bad tokens in this second. */
bool bad_tokens_are_too_many(struct bad_tokens *tokens, uint64_t address, int64_t now_ns);

#endif

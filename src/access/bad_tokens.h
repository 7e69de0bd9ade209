/*
 * Counts tokens whose signatures were verified in vain, by the address that sent them. To verify
 * one costs 0.1 ms of a loop, so an address may cost 100 of them in a second, and after that its
 * tokens are refused unread until the second is over. Tokens that are known to be valid are not
 * affected.
 *
 * Addresses that agree in 12 bits of their hash share a count. Any thread.
 */
#ifndef QUIPU_ACCESS_BAD_TOKENS_H
#define QUIPU_ACCESS_BAD_TOKENS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BAD_TOKENS_PER_SECOND 100
#define BAD_TOKENS_SLOTS 4096

/* All zero means: none. */
struct bad_tokens {
	_Atomic uint64_t
		slots[BAD_TOKENS_SLOTS]; /* the second in the upper half, the count below */
};

/* Counts one at `now_ns` of the steady clock. `address` is a hash. */
void bad_tokens_add(struct bad_tokens *tokens, uint64_t address, int64_t now_ns);

/* Whether the address has sent too many in this second. */
bool bad_tokens_are_too_many(struct bad_tokens *tokens, uint64_t address, int64_t now_ns);

#endif

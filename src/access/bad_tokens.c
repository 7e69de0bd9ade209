#include "access/bad_tokens.h"

#include "base/clock.h"

static _Atomic uint64_t *slot_of(struct bad_tokens *tokens, uint64_t address)
{
	return &tokens->slots[address % BAD_TOKENS_SLOTS];
}

/* If `slot` belongs to an earlier second than `now_ns`, returns a slot of the second of `now_ns`
 * with the count 0. Otherwise returns `slot`, which may even belong to a later second, because
 * another thread may have read the clock after this thread did. */
static uint64_t current(uint64_t slot, int64_t now_ns)
{
	uint64_t second = (uint64_t)(now_ns / NS_PER_S) << 32;

	return slot >= second ? slot : second;
}

void bad_tokens_add(struct bad_tokens *tokens, uint64_t address, int64_t now_ns)
{
	_Atomic uint64_t *slot = slot_of(tokens, address);
	uint64_t old = atomic_load(slot);

	while (!atomic_compare_exchange_weak(slot, &old, current(old, now_ns) + 1))
		;
}

bool bad_tokens_are_too_many(struct bad_tokens *tokens, uint64_t address, int64_t now_ns)
{
	uint64_t slot = current(atomic_load(slot_of(tokens, address)), now_ns);

	return (uint32_t)slot >= BAD_TOKENS_PER_SECOND;
}

#include "access/bad_tokens.h"

#include "base/clock.h"

static _Atomic uint64_t *slot_of(struct bad_tokens *tokens, uint64_t address)
{
	return &tokens->slots[address % BAD_TOKENS_SLOTS];
}

static uint64_t second_of(int64_t now_ns)
{
	return (uint64_t)(now_ns / NS_PER_S) << 32;
}

/* Returns the count in `slot`, or 0 if `slot` belongs to an earlier second. */
static uint64_t count_in(uint64_t slot, int64_t now_ns)
{
	uint64_t second = second_of(now_ns);

	return slot >= second ? slot - second : 0;
}

void bad_tokens_add(struct bad_tokens *tokens, uint64_t address, int64_t now_ns)
{
	_Atomic uint64_t *slot = slot_of(tokens, address);
	uint64_t old = atomic_load(slot);

	while (!atomic_compare_exchange_weak(
		slot, &old, second_of(now_ns) + count_in(old, now_ns) + 1))
		;
}

bool bad_tokens_are_too_many(struct bad_tokens *tokens, uint64_t address, int64_t now_ns)
{
	return count_in(atomic_load(slot_of(tokens, address)), now_ns) >= BAD_TOKENS_PER_SECOND;
}

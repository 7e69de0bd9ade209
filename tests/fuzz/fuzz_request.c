/*
 * Requests however their bytes arrive. The first byte of the input seeds the cuts; the rest is
 * parsed whole, byte by byte, and cut at random, and must give the same requests each time.
 */
#include "base/random.h"
#include "stream.h"
#include "target.h"

struct random_cuts {
	struct stream_cuts base;
	struct dice dice;
	size_t longest;
};

static size_t next_piece(struct stream_cuts *base, size_t left)
{
	struct random_cuts *cuts = (struct random_cuts *)base;
	size_t longest = cuts->longest < left ? cuts->longest : left;

	return 1 + (size_t)dice_below(&cuts->dice, longest);
}

static void must_agree(struct arena *arena, const struct admission *admission, struct slice bytes,
	const struct stream_record *whole, struct random_cuts cuts)
{
	struct stream_record cut = stream_run(arena, admission, bytes, &cuts.base);

	if (stream_same(&cut, whole))
		return;
	fprintf(stderr, "pieces of up to %zu: %.*s\nwhole: %.*s\n", cuts.longest,
		(int)cut.summary.len, cut.summary.data, (int)whole->summary.len,
		whole->summary.data);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t longest[] = {1, 3, 16, 1000};
	static struct router *router;
	struct random_cuts cuts = {.base.next = next_piece};
	struct admission admission;
	struct stream_record whole;
	struct slice bytes;
	struct arena arena;

	if (size == 0)
		return 0;
	if (!router)
		router = stream_router_new();
	admission = stream_admission(router);
	arena_init(&arena, 64 * 1024);
	bytes = slice_make(data + 1, size - 1);
	whole = stream_run(&arena, &admission, bytes, NULL);
	for (size_t i = 0; i < sizeof(longest) / sizeof(longest[0]); i++) {
		cuts.dice.state = data[0];
		cuts.longest = longest[i];
		must_agree(&arena, &admission, bytes, &whole, cuts);
	}
	arena_release(&arena);
	return 0;
}

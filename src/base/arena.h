/*
 * An arena allocates many blocks of memory and frees all of them at once. Every request and every
 * batch has an arena. An arena has no lock: only the thread that currently owns the request or
 * batch may use it.
 *
 * If memory runs out, the process aborts with a message. To keep clients from causing that,
 * everything that a client can make large (bodies, lanes, connections) is bounded before it reaches
 * an arena.
 */
#ifndef QUIPU_BASE_ARENA_H
#define QUIPU_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct arena_chunk;

struct arena {
	struct arena_chunk *current;
	size_t first_size;
	size_t held; /* bytes allocated from the system */
};

/* Initialises an empty arena. The first allocation adds a chunk of `first_size` bytes, or a larger
 * chunk if the allocation needs more. */
void arena_init(struct arena *arena, size_t first_size);

/* Frees all allocations. Keeps the first chunk for reuse, unless the chunk is larger than
 * `first_size`. */
void arena_reset(struct arena *arena);

/* Frees all allocations and all chunks. The arena may be used again afterwards. */
void arena_release(struct arena *arena);

/* Returns `size` uninitialised bytes, aligned for any type. Never returns NULL. */
void *arena_alloc(struct arena *arena, size_t size);

/* Returns memory for `count` elements of `size` bytes, set to zero. Never returns NULL. */
void *arena_calloc(struct arena *arena, size_t count, size_t size);

/*
 * Grows the block at `old` from `old_size` to `size` bytes and returns its new address. The block
 * stays in place if it is the last block of the newest chunk and that chunk has room; otherwise it
 * is copied.
 */
void *arena_grow(struct arena *arena, void *old, size_t old_size, size_t size);

/* Returns a copy of `from`, followed by a NUL that the returned slice does not include. */
struct slice arena_copy(struct arena *arena, struct slice from);

/*
 * These work like malloc(), calloc() and strdup(), but abort when memory runs out. Use them for
 * long-lived objects. qp_calloc() does not touch large blocks, so a sparse table costs only the
 * pages that it uses.
 */
void *qp_malloc(size_t size);
void *qp_calloc(size_t count, size_t size);
char *qp_strdup(const char *text);

#define arena_new(arena, type) ((type *)arena_calloc((arena), 1, sizeof(type)))
#define arena_array(arena, type, count) ((type *)arena_calloc((arena), (count), sizeof(type)))

#endif

/*
 * Memory that is handed out piece by piece and taken back at once: one arena for a request, one for
 * a batch. An arena has no lock; it belongs to whichever thread owns the request or batch, and
 * moves with it.
 *
 * Running out of memory aborts with a message: the places that bound memory (bodies, lanes,
 * connections) are bounded before they reach an arena.
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
	size_t held; /* bytes it has from the system */
};

/* `first_size` bytes are allocated at the first use and kept across arena_reset(). */
void arena_init(struct arena *arena, size_t first_size);

/* Forgets everything handed out; keeps the first chunk for the next round. */
void arena_reset(struct arena *arena);

/* Frees everything. The arena may be used again after. */
void arena_release(struct arena *arena);

/* `size` bytes, aligned for any type, not cleared. Never NULL. */
void *arena_alloc(struct arena *arena, size_t size);

/* The same, cleared, for `count` things of `size` bytes. */
void *arena_calloc(struct arena *arena, size_t count, size_t size);

/*
 * Makes room for `size` bytes in place of the `old_size` at `old`, which is moved only where it
 * cannot grow where it lies.
 */
void *arena_grow(struct arena *arena, void *old, size_t old_size, size_t size);

/* A copy; with a NUL behind it that does not count in `len`. */
struct slice arena_copy(struct arena *arena, struct slice from);

/* malloc() and calloc() for what lives as long as the program; abort when there is no memory. */
void *qp_malloc(size_t size);
void *qp_calloc(size_t count, size_t size);
char *qp_strdup(const char *text);

#define arena_new(arena, type) ((type *)arena_calloc((arena), 1, sizeof(type)))
#define arena_array(arena, type, count) ((type *)arena_calloc((arena), (count), sizeof(type)))

#endif

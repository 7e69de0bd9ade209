/*
 * An arena is a list of chunks, each at least twice as large as the one before it. An allocation
 * only increases `used` of the newest chunk. Most requests fit into the first chunk, which survives
 * arena_reset(), so a request object that is reused needs no malloc().
 *
 * Invariant: memory comes only from the newest chunk. A new chunk is added when an allocation does
 * not fit into that chunk.
 */
#include "base/arena.h"

#include <assert.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

struct arena_chunk {
	struct arena_chunk *before;
	size_t size;
	size_t used;
	alignas(max_align_t) char bytes[];
};

static size_t align_up(size_t size)
{
	size_t unit = alignof(max_align_t);

	return (size + unit - 1) / unit * unit;
}

static void *require(void *memory, size_t size)
{
	if (!memory) {
		fprintf(stderr, "quipu: out of memory (%zu bytes requested)\n", size);
		abort();
	}
	return memory;
}

void *qp_malloc(size_t size)
{
	return require(malloc(size ? size : 1), size);
}

void *qp_calloc(size_t count, size_t size)
{
	assert(size == 0 || count <= SIZE_MAX / size);
	return require(calloc(count ? count : 1, size ? size : 1), count * size);
}

char *qp_strdup(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(qp_malloc(size), text, size);
}

void arena_init(struct arena *arena, size_t first_size)
{
	arena->current = NULL;
	arena->held = 0;
	arena->first_size = align_up(first_size);
}

static void add_chunk(struct arena *arena, size_t least)
{
	size_t size = arena->current ? arena->current->size * 2 : arena->first_size;
	struct arena_chunk *chunk;

	if (size < least)
		size = least;
	chunk = qp_malloc(sizeof(*chunk) + size);
	chunk->before = arena->current;
	chunk->size = size;
	chunk->used = 0;
	arena->current = chunk;
	arena->held += size;
}

void arena_reset(struct arena *arena)
{
	struct arena_chunk *chunk = arena->current;

	while (chunk && chunk->before) {
		struct arena_chunk *before = chunk->before;

		free(chunk);
		chunk = before;
	}
	if (chunk && chunk->size > arena->first_size) {
		free(chunk);
		chunk = NULL;
	}
	if (chunk)
		chunk->used = 0;
	arena->held = chunk ? chunk->size : 0;
	arena->current = chunk;
}

void arena_release(struct arena *arena)
{
	while (arena->current) {
		struct arena_chunk *before = arena->current->before;

		free(arena->current);
		arena->current = before;
	}
	arena->held = 0;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	struct arena_chunk *chunk = arena->current;
	void *memory;

	assert(size <= SIZE_MAX / 4);
	size = align_up(size);
	if (!chunk || chunk->size - chunk->used < size) {
		add_chunk(arena, size);
		chunk = arena->current;
	}
	memory = chunk->bytes + chunk->used;
	chunk->used += size;
	return memory;
}

void *arena_calloc(struct arena *arena, size_t count, size_t size)
{
	assert(size == 0 || count <= SIZE_MAX / size);
	return memset(arena_alloc(arena, count * size), 0, count * size);
}

void *arena_grow(struct arena *arena, void *old, size_t old_size, size_t size)
{
	struct arena_chunk *chunk = arena->current;
	void *moved;

	assert(size >= old_size);
	if (old && chunk) {
		size_t held = align_up(old_size);
		size_t wanted = align_up(size);
		int is_last = (char *)old + held == chunk->bytes + chunk->used;

		if (is_last && chunk->size - chunk->used >= wanted - held) {
			chunk->used += wanted - held;
			return old;
		}
	}
	moved = arena_alloc(arena, size);
	if (old_size > 0)
		memcpy(moved, old, old_size);
	return moved;
}

struct slice arena_copy(struct arena *arena, struct slice from)
{
	char *copy = arena_alloc(arena, from.len + 1);

	if (from.len > 0)
		memcpy(copy, from.data, from.len);
	copy[from.len] = '\0';
	return slice_make(copy, from.len);
}

#include "http/http2_memory.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define KEPT_MAX 512

struct http2_block {
	size_t size; /* the size of the block, without this header */
	struct http2_block *next;
};

_Static_assert(sizeof(struct http2_block) % 16 == 0,
	"the bytes behind the header must be aligned for any type");

static size_t class_of(size_t size)
{
	return size == 0 ? 0 : (size - 1) / POOL_UNIT;
}

/* With AddressSanitizer no block is kept for reuse, so that any use of a freed block is
 * detected. */
static bool may_keep(const struct http2_pool *pool, size_t class)
{
#ifdef __SANITIZE_ADDRESS__
	return false;
#else
	return class < POOL_CLASSES && pool->count[class] < KEPT_MAX;
#endif
}

static struct http2_block *block_of(void *bytes)
{
	return (struct http2_block *)bytes - 1;
}

static void *take(size_t size, void *context)
{
	struct http2_memory *memory = context;
	size_t class = class_of(size);
	struct http2_block *block = class < POOL_CLASSES ? memory->pool->free[class] : NULL;

	if (block) {
		memory->pool->free[class] = block->next;
		memory->pool->count[class]--;
	} else {
		if (class < POOL_CLASSES)
			size = (class + 1) * POOL_UNIT;
		block = qp_malloc(sizeof(*block) + size);
		block->size = size;
	}
	memory->bytes += sizeof(*block) + block->size;
	return block + 1;
}

static void give_back(void *bytes, void *context)
{
	struct http2_memory *memory = context;
	struct http2_block *block;
	size_t class;

	if (!bytes)
		return;
	block = block_of(bytes);
	class = class_of(block->size);
	assert(memory->bytes >= sizeof(*block) + block->size);
	memory->bytes -= sizeof(*block) + block->size;
	if (may_keep(memory->pool, class)) {
		block->next = memory->pool->free[class];
		memory->pool->free[class] = block;
		memory->pool->count[class]++;
		return;
	}
	free(block);
}

static void *take_cleared(size_t count, size_t size, void *context)
{
	assert(size == 0 || count <= SIZE_MAX / size);
	return memset(take(count * size, context), 0, count * size);
}

static void *resize(void *bytes, size_t size, void *context)
{
	void *moved;

	if (bytes && block_of(bytes)->size >= size)
		return bytes;
	moved = take(size, context);
	if (bytes)
		memcpy(moved, bytes, block_of(bytes)->size);
	give_back(bytes, context);
	return moved;
}

nghttp2_mem http2_memory_functions(struct http2_memory *memory)
{
	return (nghttp2_mem){
		.mem_user_data = memory,
		.malloc = take,
		.free = give_back,
		.calloc = take_cleared,
		.realloc = resize,
	};
}

void http2_pool_release(struct http2_pool *pool)
{
	for (size_t class = 0; class < POOL_CLASSES; class ++) {
		while (pool->free[class]) {
			struct http2_block *block = pool->free[class];

			pool->free[class] = block->next;
			free(block);
		}
		pool->count[class] = 0;
	}
}

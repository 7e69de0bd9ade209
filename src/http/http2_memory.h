/*
 * Memory for nghttp2. Every byte that a session holds (HPACK tables, frames, streams) is counted
 * for its connection, and thus against --client-bytes. Small blocks are kept for reuse in one pool
 * per loop: nghttp2 allocates several for each request, and none of them should cost a malloc().
 * Used only on the loop's thread.
 */
#ifndef QUIPU_HTTP_HTTP2_MEMORY_H
#define QUIPU_HTTP_HTTP2_MEMORY_H

#include <nghttp2/nghttp2.h>
#include <stddef.h>

#define POOL_UNIT 64
#define POOL_CLASSES 16

struct http2_block;

/* An empty pool is all zero. */
struct http2_pool {
	struct http2_block *free[POOL_CLASSES];
	size_t count[POOL_CLASSES];
};

/* The bytes that one session has allocated, and where they come from. */
struct http2_memory {
	struct http2_pool *pool;
	size_t bytes;
};

/* Returns functions that allocate for `memory`, which must outlive the session. */
nghttp2_mem http2_memory_functions(struct http2_memory *memory);

void http2_pool_release(struct http2_pool *pool);

#endif

/*
 * Allocates memory for nghttp2. Every byte that a session of nghttp2 holds (HPACK tables, frames,
 * streams) is counted for its connection, and thus against --client-bytes. Small blocks are kept
 * for reuse in one pool per loop, because nghttp2 allocates several blocks for each request, and
 * most of these allocations should not call malloc(). Used only on the loop's thread.
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

/* How many bytes one session of nghttp2 has allocated, and the pool that it uses. */
struct http2_memory {
	struct http2_pool *pool;
	size_t bytes;
};

/* Returns the functions with which a session of nghttp2 allocates and frees. They count the
 * bytes in `memory`, which must outlive the session. */
nghttp2_mem http2_memory_functions(struct http2_memory *memory);

void http2_pool_release(struct http2_pool *pool);

#endif

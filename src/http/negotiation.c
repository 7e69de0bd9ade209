/*
 * Bodies up to 1 KiB fit into a packet or two, so compressing them gains nothing. An answer to HEAD
 * is also compressed, because its headers must be the same as in the answer to GET. Streams are
 * never compressed, because their events are small and must be sent at once.
 */
#include "http/negotiation.h"

#include "http/compressor.h"
#include "http/cors.h"
#include "http/worker.h"

#define PLAIN_MAX 1024
#define COMPRESSED_MAX (2 * 1024 * 1024)

static bool is_text(struct slice type)
{
	return slice_starts_with(type, "application/json") ||
	       slice_starts_with(type, "application/problem+json") ||
	       slice_starts_with(type, "text/");
}

/* Returns whether the answer would be compressed for a client that accepts gzip. */
static bool may_compress(const struct request *request)
{
	const struct answer *answer = &request->answer;

	return !request->is_stream && answer->body.len > PLAIN_MAX &&
	       answer->body.len <= COMPRESSED_MAX && is_text(answer->content_type);
}

static bool compress(struct request *request)
{
	struct http_worker *worker = request->worker;
	struct slice accepted = request_header(request, "Accept-Encoding");
	struct slice body;

	if (!compressor_is_wanted(accepted) || request->answer.body.len > worker->compress_left)
		return false;
	worker->compress_left -= request->answer.body.len;
	if (!worker->compressor)
		worker->compressor = compressor_new();
	body = compressor_gzip(worker->compressor, &request->arena, request->answer.body);
	if (!body.data)
		return false;
	request->answer.body = body;
	return true;
}

static void add_header(struct request *request, const char *line)
{
	struct slice before = request->answer.headers;
	struct buffer headers = buffer_make(&request->arena, before.len + strlen(line) + 2);

	buffer_add(&headers, before);
	buffer_text(&headers, line);
	buffer_text(&headers, "\r\n");
	request->answer.headers = buffer_slice(&headers);
}

void negotiation_finish(struct request *request)
{
	struct slice origins = request->worker->admission->cors_origins;
	bool by_encoding = may_compress(request);
	bool by_origin = cors_depends_on_origin(origins);

	if (by_encoding && compress(request))
		add_header(request, "Content-Encoding: gzip");
	if (by_encoding && by_origin)
		add_header(request, "Vary: Accept-Encoding, Origin");
	else if (by_encoding)
		add_header(request, "Vary: Accept-Encoding");
	else if (by_origin)
		add_header(request, "Vary: Origin");
	cors_sign(origins, request);
}

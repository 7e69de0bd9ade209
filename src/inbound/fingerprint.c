/*
 * Every part is added to the digest with its length in front, so different requests never add the
 * same bytes.
 *
 * Fingerprints of version 1 were digests of the raw request. A record's `typed` points to the raw
 * parts of the request. From these parts, a store computes a fingerprint of version 1, but only if
 * the stored record has a fingerprint of that version.
 */
#include "inbound/fingerprint.h"

#include <stdlib.h>

#include "base/json_digest.h"
#include "http/router.h"

static void add_text(struct digest *digest, struct slice text)
{
	uint64_t len = text.len;

	digest_add(digest, slice_make(&len, sizeof(len)));
	digest_add(digest, text);
}

/* Orders query parameters by name. Parameters with the same name keep the order of the request,
 * which may matter. */
static int compare_pairs(const void *a, const void *b)
{
	const struct query_pair *left = *(const struct query_pair *const *)a;
	const struct query_pair *right = *(const struct query_pair *const *)b;
	int order = slice_compare(left->name, right->name);

	return order ? order : (left > right) - (left < right);
}

static void add_query(struct digest *digest, const struct query *query, struct arena *arena)
{
	const struct query_pair **pairs =
		arena_array(arena, const struct query_pair *, query->count);

	for (size_t i = 0; i < query->count; i++)
		pairs[i] = &query->pairs[i];
	if (query->count > 1)
		qsort(pairs, query->count, sizeof(*pairs), compare_pairs);
	add_text(digest, slice_make(&query->count, sizeof(query->count)));
	for (size_t i = 0; i < query->count; i++) {
		add_text(digest, pairs[i]->name);
		add_text(digest, pairs[i]->value);
	}
}

static void add_json(struct digest *digest, json_t *body, struct arena *arena)
{
	add_text(digest, slice_of("json"));
	json_digest(digest, body, arena);
}

/* Twirp handlers do not read their message through `input`, so their JSON is parsed here. */
static void add_body(struct digest *digest, const struct input *input)
{
	struct request *request = input->request;
	char why[JSON_WHY_SIZE];
	json_t *body = NULL;

	if (request->body.len == 0) {
		add_text(digest, slice_of("absent"));
		return;
	}
	if (input->body) {
		add_json(digest, input->body, &request->arena);
		return;
	}
	if (request_has_json(request))
		body = json_parse_object(request->body, why);
	if (body) {
		add_json(digest, body, &request->arena);
		json_decref(body);
		return;
	}
	add_text(digest, slice_of("bytes"));
	add_text(digest, request->body);
}

void fingerprint_asked(
	const struct asked *asked, struct arena *arena, struct idempotency_record *record)
{
	const struct query no_query = {0};
	struct digest digest;

	digest_begin(&digest);
	add_text(&digest, slice_of(asked->method));
	add_text(&digest, slice_of(asked->path));
	add_text(&digest, asked->param);
	for (size_t i = 1; i < REQUEST_PARAMS_MAX; i++)
		add_text(&digest, (struct slice){0});
	add_query(&digest, &no_query, arena);
	if (asked->body)
		add_json(&digest, asked->body, arena);
	else
		add_text(&digest, slice_of("absent"));
	record->fingerprint[0] = FINGERPRINT_VERSION;
	digest_end(&digest, record->fingerprint + 1);
}

void fingerprint_request(const struct input *input, struct idempotency_record *record)
{
	struct request *request = input->request;
	struct digest digest;

	_Static_assert(
		FINGERPRINT_SIZE == 1 + SHA256_SIZE, "a fingerprint is a version and a digest");
	digest_begin(&digest);
	add_text(&digest, request->method);
	add_text(&digest, slice_of(request->route->path));
	for (size_t i = 0; i < REQUEST_PARAMS_MAX; i++)
		add_text(&digest, request->params[i]);
	add_query(&digest, &request->query, &request->arena);
	add_body(&digest, input);
	record->fingerprint[0] = FINGERPRINT_VERSION;
	digest_end(&digest, record->fingerprint + 1);
	record->typed[0] = request->method;
	record->typed[1] = request->path.raw;
	record->typed[2] = request->body;
}

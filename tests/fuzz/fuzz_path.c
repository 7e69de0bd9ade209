/* Targets and queries: whatever is accepted is text that can be read in one way. */
#include "base/text.h"
#include "http/path.h"
#include "target.h"

static void check_segments(const struct path *path)
{
	size_t count = path->count < PATH_SEGMENTS_MAX ? path->count : PATH_SEGMENTS_MAX;

	MUST(path->count <= PATH_SEGMENTS_MAX + 1);
	for (size_t i = 0; i < count; i++) {
		struct slice segment = path->segments[i];

		MUST(text_is_utf8(segment));
		MUST(segment.len == 0 || !memchr(segment.data, '/', segment.len));
		MUST(segment.len == 0 || !memchr(segment.data, '\0', segment.len));
		MUST(!slice_is(segment, ".") && !slice_is(segment, ".."));
	}
}

/* As many segments as there are slashes, and nothing of the query in the path. */
static void check_shape(const struct path *path)
{
	size_t slashes = 0;

	MUST(path->raw.len > 0 && path->raw.data[0] == '/');
	MUST(!memchr(path->raw.data, '?', path->raw.len));
	for (size_t i = 0; i < path->raw.len; i++)
		slashes += path->raw.data[i] == '/';
	if (path->raw.len == 1)
		slashes = 0;
	MUST(path->count == (slashes > PATH_SEGMENTS_MAX ? PATH_SEGMENTS_MAX + 1 : slashes));
}

static void check_query(struct arena *arena, struct slice raw)
{
	struct query query;
	const char *why = NULL;

	if (query_parse(arena, raw, &query, &why) != STATUS_OK) {
		MUST(why != NULL);
		return;
	}
	MUST(query.count <= QUERY_PAIRS_MAX);
	for (size_t i = 0; i < query.count; i++) {
		const struct query_pair *pair = &query.pairs[i];

		MUST(text_is_utf8(pair->name) && text_is_utf8(pair->value));
		MUST(pair->name.len + pair->value.len > 0);
	}
}

/* An absolute target must read as the path in it does alone. */
static void check_absolute(struct arena *arena, struct slice target, const struct path *plain)
{
	struct buffer absolute = buffer_make(arena, target.len + 32);
	const char *why;
	struct path path;

	buffer_text(&absolute, "http://localhost:8080");
	buffer_add(&absolute, target);
	MUST(path_parse(arena, buffer_slice(&absolute), &path, &why) == STATUS_OK);
	MUST(slice_equal(path.raw, plain->raw) && slice_equal(path.query, plain->query));
	MUST(path.count == plain->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice target = slice_make(data, size);
	struct arena arena;
	struct path path;
	const char *why = NULL;

	arena_init(&arena, 16 * 1024);
	if (path_parse(&arena, target, &path, &why) == STATUS_OK) {
		check_segments(&path);
		check_shape(&path);
		check_query(&arena, path.query);
		if (target.data[0] == '/')
			check_absolute(&arena, target, &path);
	} else {
		MUST(why != NULL);
	}
	check_query(&arena, target);
	MUST(host_without_port(target).len <= target.len);
	MUST(!host_is_loopback(target) || size > 0);
	arena_release(&arena);
	return 0;
}

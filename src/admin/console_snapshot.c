/*
 * Parses the metrics page, which is in Prometheus's text format, instead of reading the numbers
 * from the modules: every module already writes its numbers to that page, so new numbers appear in
 * the console without further work. Parsing a page of 100 KB takes less than a millisecond, and
 * happens only once a second while there are viewers.
 */
#include "admin/console_snapshot.h"

#include <stdlib.h>
#include <string.h>

#define CLASSES 6
#define ROLES_MAX 16
#define TOTALS 3

struct sample {
	struct slice name;
	struct slice labels; /* `a="b",c="d"`, or empty */
	double value;
};

/* ---- reading a page ---------------------------------------------------------------------- */

static double to_number(struct slice text)
{
	char digits[64];
	size_t len = text.len < sizeof(digits) - 1 ? text.len : sizeof(digits) - 1;

	memcpy(digits, text.data, len);
	digits[len] = '\0';
	return strtod(digits, NULL);
}

/* Reads a line such as name{a="b"} 3. Label values may contain spaces and braces, so the labels end
 * at the last brace. Returns false if the line is a comment or has no value. */
static bool read_sample(struct slice line, struct sample *sample)
{
	size_t space = line.len, brace = 0;

	while (space > 0 && line.data[space - 1] != ' ')
		space--;
	if (space < 2 || line.data[0] == '#')
		return false;
	sample->value = to_number((struct slice){line.data + space, line.len - space});
	sample->name = (struct slice){line.data, space - 1};
	sample->labels = (struct slice){0};
	while (brace < space - 1 && line.data[brace] != '{')
		brace++;
	if (brace < space - 1) {
		sample->name.len = brace;
		sample->labels = (struct slice){line.data + brace + 1, space - 3 - brace};
	}
	return true;
}

/* Returns the value of a label, or {NULL, 0} if the sample has no such label. Decodes no escapes,
 * because the labels that this file reads contain none. */
static struct slice label(const struct sample *sample, const char *name)
{
	size_t len = strlen(name);
	struct slice rest = sample->labels;

	while (rest.len > 0) {
		struct slice pair = slice_cut(&rest, ',');

		if (pair.len > len + 2 && memcmp(pair.data, name, len) == 0 &&
			pair.data[len] == '=')
			return (struct slice){pair.data + len + 2, pair.len - len - 3};
	}
	return (struct slice){0};
}

/* ---- requests ---------------------------------------------------------------------------- */

struct role_requests {
	const char *role;
	double classes[CLASSES]; /* numbers of requests, by the first digit of the status */
};

struct requests {
	const struct router *router;
	struct role_requests roles[ROLES_MAX];
	size_t count;
};

static const char *role_of(const struct router *router, const struct sample *sample)
{
	struct slice path = label(sample, "route"), method = label(sample, "method");

	for (size_t i = 0; i < router_count(router); i++) {
		const struct route *route = router_at(router, i);

		if (slice_is(path, route->path) && slice_is(method, route->method))
			return router_role(route) ? router_role(route) : "program";
	}
	return "unmatched";
}

static void add_requests(struct requests *requests, const struct sample *sample)
{
	const char *role = role_of(requests->router, sample);
	struct slice code = label(sample, "code");
	size_t class = code.len > 0 && code.data[0] >= '1' && code.data[0] <= '5'
			       ? (size_t)(code.data[0] - '0')
			       : 0;

	for (size_t i = 0; i < ROLES_MAX; i++) {
		struct role_requests *entry = &requests->roles[i];

		if (i == requests->count) {
			entry->role = role;
			requests->count++;
		}
		if (strcmp(entry->role, role) == 0) {
			entry->classes[class] += sample->value;
			return;
		}
	}
}

static void write_requests(struct buffer *json, const struct requests *requests)
{
	buffer_text(json, ",\"requests\":{");
	for (size_t i = 0; i < requests->count; i++) {
		const struct role_requests *entry = &requests->roles[i];
		bool is_first = true;

		buffer_format(json, "%s\"%s\":{", i == 0 ? "" : ",", entry->role);
		for (size_t class = 0; class < CLASSES; class ++) {
			if (entry->classes[class] == 0)
				continue;
			buffer_format(json, "%s\"%zuxx\":%.0f", is_first ? "" : ",", class,
				entry->classes[class]);
			is_first = false;
		}
		buffer_char(json, '}');
	}
	buffer_char(json, '}');
}

/* ---- histograms -------------------------------------------------------------------------- */

/* A histogram of the snapshot: the sum over all series of one metric family. */
struct total {
	const char *name;   /* the histogram's name in the snapshot */
	const char *family; /* the family's name on the metrics page */
	double sum;
	double count;
	struct slice bounds[HISTOGRAM_BUCKETS + 1];
	double buckets[HISTOGRAM_BUCKETS + 1];
	size_t bucket_count;
};

static void add_bucket(struct total *total, const struct sample *sample)
{
	struct slice bound = label(sample, "le");

	for (size_t i = 0; i < HISTOGRAM_BUCKETS + 1; i++) {
		if (i == total->bucket_count)
			total->bounds[total->bucket_count++] = bound;
		if (slice_equal(total->bounds[i], bound)) {
			total->buckets[i] += sample->value;
			return;
		}
	}
}

static bool has_suffix(const struct sample *sample, const struct total *total, const char *suffix)
{
	size_t len = strlen(total->family);
	struct slice rest = {sample->name.data + len, sample->name.len - len};

	return slice_is(rest, suffix);
}

static void add_to_total(struct total *total, const struct sample *sample)
{
	if (!slice_starts_with(sample->name, total->family))
		return;
	if (has_suffix(sample, total, "_bucket"))
		add_bucket(total, sample);
	else if (has_suffix(sample, total, "_sum"))
		total->sum += sample->value;
	else if (has_suffix(sample, total, "_count"))
		total->count += sample->value;
}

/* Leaves out every bucket whose count equals the count of the previous bucket. Nothing is lost,
 * because a bucket's count includes the counts of all smaller buckets. */
static void write_total(struct buffer *json, const struct total *total)
{
	double before = 0;
	bool is_first = true;

	buffer_format(json, "\"%s\":{\"sum\":%.9g,\"count\":%.0f,\"buckets\":[", total->name,
		total->sum, total->count);
	for (size_t i = 0; i < total->bucket_count; i++) {
		if (total->buckets[i] == before)
			continue;
		buffer_format(json, "%s[", is_first ? "" : ",");
		if (slice_is(total->bounds[i], "+Inf"))
			buffer_text(json, "null");
		else
			buffer_add(json, total->bounds[i]);
		buffer_format(json, ",%.0f]", total->buckets[i]);
		before = total->buckets[i];
		is_first = false;
	}
	buffer_text(json, "]}");
}

/* ---- everything else --------------------------------------------------------------------- */

static bool is_bucket(struct slice name)
{
	const size_t len = sizeof("_bucket") - 1;

	return name.len > len && memcmp(name.data + name.len - len, "_bucket", len) == 0;
}

/* Returns whether the array "samples" of a snapshot contains this sample. The array leaves out the
 * buckets of histograms, the durations of requests (there is a histogram for every route), and
 * zeros, except where 0 means that a dependency is down. */
static bool is_shown(const struct sample *sample)
{
	if (is_bucket(sample->name) ||
		slice_starts_with(sample->name, "quipu_http_request_duration"))
		return false;
	return sample->value != 0 || slice_is(sample->name, "quipu_dependency_up");
}

static void write_sample(struct buffer *json, const struct sample *sample, bool is_first)
{
	buffer_text(json, is_first ? "[" : ",[");
	buffer_json_string(json, sample->name);
	buffer_char(json, ',');
	buffer_json_string(json, sample->labels);
	buffer_format(json, ",%.9g]", sample->value);
}

void console_snapshot_write(struct buffer *json, struct slice page, const struct router *router)
{
	struct requests requests = {.router = router};
	struct total totals[TOTALS] = {
		{.name = "commit", .family = "quipu_commit_duration_seconds"},
		{.name = "batch", .family = "quipu_batch_size"},
		{.name = "request", .family = "quipu_http_request_duration_seconds"},
	};
	bool is_first = true;

	buffer_text(json, ",\"samples\":[");
	while (page.len > 0) {
		struct slice line = slice_cut(&page, '\n');
		struct sample sample;

		if (!read_sample(line, &sample))
			continue;
		if (slice_is(sample.name, "quipu_http_requests_total")) {
			add_requests(&requests, &sample);
			continue;
		}
		for (size_t i = 0; i < TOTALS; i++)
			add_to_total(&totals[i], &sample);
		if (is_shown(&sample)) {
			write_sample(json, &sample, is_first);
			is_first = false;
		}
	}
	buffer_char(json, ']');
	write_requests(json, &requests);
	buffer_text(json, ",\"histograms\":{");
	for (size_t i = 0; i < TOTALS; i++) {
		if (i > 0)
			buffer_char(json, ',');
		write_total(json, &totals[i]);
	}
	buffer_char(json, '}');
}

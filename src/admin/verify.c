/*
 * A cursor consists of the name of a part, if the verifier has several parts, and the key of the
 * last row that was checked. The server keeps no state between pages, and a client may request a
 * page again.
 */
#include "admin/verify.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "inbound/input.h"
#include "inbound/submit.h"

#define PAGE_LIMIT 1000
#define SENTENCE_SIZE 1024

/* Separates the columns of a key in a cursor. It occurs in no id, because ids have no control
 * characters. */
#define KEY_SEPARATOR '\x1f'

void verify_add(struct verifiers *verifiers, const struct verifier *verifier)
{
	assert(verifiers->count < VERIFIERS_MAX);
	verifiers->all[verifiers->count++] = verifier;
}

/* ---- differences ------------------------------------------------------------------------- */

/* Writes a JSON member. Escapes invalid UTF-8, which a damaged table may contain. */
static void write_string(struct verify_page *page, const char *name, struct slice text)
{
	struct buffer escaped = buffer_make(page->arena, text.len + 16);

	if (!text_is_utf8(text)) {
		text_escape_log(&escaped, text);
		text = buffer_slice(&escaped);
	}
	buffer_member(&page->differences, name, text);
}

void verify_differ_with(struct verify_page *page, struct slice id, const char *what,
	struct slice members, struct slice sentence)
{
	struct buffer *out = &page->differences;

	buffer_text(out, out->len > 0 ? ",{" : "{");
	write_string(page, "id", id);
	buffer_member(out, "what", slice_of(what));
	write_string(page, "detail", sentence);
	buffer_add(out, members);
	buffer_char(out, '}');
}

void verify_differ(
	struct verify_page *page, struct slice id, const char *what, const char *format, ...)
{
	char sentence[SENTENCE_SIZE];
	va_list arguments;
	int len;

	va_start(arguments, format);
	len = vsnprintf(sentence, sizeof(sentence), format, arguments);
	va_end(arguments);
	assert(len > 0);
	if ((size_t)len >= sizeof(sentence))
		len = sizeof(sentence) - 1;
	verify_differ_with(page, id, what, (struct slice){0},
		text_cut(slice_make(sentence, (size_t)len), sizeof(sentence)));
}

void verify_time(struct verify_page *page, struct slice id, const char *column, int64_t time_us)
{
	int64_t ahead_us = time_us - page->rows.now_us;

	if (ahead_us > VERIFY_SKEW_US)
		verify_differ(page, id, "in-the-future", "%.*s: %s is %lld s in the future",
			(int)id.len, id.data, column, (long long)(ahead_us / 1000000));
}

/* ---- cursors ----------------------------------------------------------------------------- */

void verify_finish_number(
	struct verify_page *page, struct slice first, struct slice second, int64_t number)
{
	page->checked = page->rows.count;
	if (page->rows.count < page->rows.limit)
		return;
	buffer_add(&page->position, first);
	buffer_char(&page->position, KEY_SEPARATOR);
	buffer_add(&page->position, second);
	buffer_char(&page->position, KEY_SEPARATOR);
	buffer_int(&page->position, number);
}

void verify_finish_numbers(struct verify_page *page, struct slice first, struct slice second,
	int64_t number, int64_t minor)
{
	verify_finish_number(page, first, second, number);
	if (page->position.len == 0)
		return;
	buffer_char(&page->position, KEY_SEPARATOR);
	buffer_int(&page->position, minor);
}

void verify_finish(struct verify_page *page, struct slice first, struct slice second)
{
	page->checked = page->rows.count;
	if (page->rows.count < page->rows.limit)
		return;
	buffer_add(&page->position, first);
	if (second.len == 0)
		return;
	buffer_char(&page->position, KEY_SEPARATOR);
	buffer_add(&page->position, second);
}

/* Reads the key in a cursor into `rows`. A key ends with up to two numbers. If a number is absent,
 * its member of `rows` stays unchanged. Returns false if a number cannot be read. */
static bool read_position(struct slice position, struct row_page *rows)
{
	rows->after[0] = slice_cut(&position, KEY_SEPARATOR);
	rows->after[1] = position.data ? slice_cut(&position, KEY_SEPARATOR) : position;
	return (!position.data ||
		       text_to_int(slice_cut(&position, KEY_SEPARATOR), &rows->after_number)) &&
	       (!position.data || text_to_int(position, &rows->after_minor));
}

/*
 * Reads a cursor such as "outbox:7d44…" or, if the verifier has only one part, "7d44…". Returns the
 * part and sets the position in `rows`. If this verifier cannot have written the cursor, returns
 * NULL.
 */
static const struct verify_part *read_cursor(
	const struct verifier *verifier, struct slice cursor, struct row_page *rows)
{
	const struct verify_part *part = verifier->parts;
	struct slice name = slice_of(part->name);

	if (verifier->part_count > 1 && cursor.len > 0)
		name = slice_cut(&cursor, ':');
	while (part < verifier->parts + verifier->part_count && !slice_is(name, part->name))
		part++;
	if (part == verifier->parts + verifier->part_count || !read_position(cursor, rows))
		return NULL;
	return part;
}

static void write_cursor(const struct verifier *verifier, const struct verify_part *part,
	const struct verify_page *page, struct buffer *body)
{
	struct buffer cursor = buffer_make(page->arena, 64);
	bool is_done = page->position.len == 0;

	if (is_done && part + 1 == verifier->parts + verifier->part_count) {
		buffer_text(body, ",\"next\":null");
		return;
	}
	if (verifier->part_count > 1)
		buffer_format(&cursor, "%s:", is_done ? part[1].name : part->name);
	buffer_add(&cursor, buffer_slice(&page->position));
	buffer_member(body, "next", buffer_slice(&cursor));
}

/* ---- pages ------------------------------------------------------------------------------- */

static void write_page(const struct verifier *verifier, const struct verify_part *part,
	const struct verify_page *page, struct buffer *body)
{
	buffer_char(body, '{');
	buffer_member(body, "service", slice_of(verifier->name));
	buffer_member_int(body, "checked", (int64_t)page->checked);
	if (verifier->counted_as)
		buffer_member_int(body, verifier->counted_as, (int64_t)page->checked);
	buffer_text(body, ",\"differences\":[");
	buffer_add(body, buffer_slice(&page->differences));
	buffer_char(body, ']');
	write_cursor(verifier, part, page, body);
	buffer_char(body, '}');
}

enum status verify_look(const struct verify_request *request, struct session *session,
	struct arena *arena, struct buffer *body)
{
	const struct verifier *verifier = request->verifier;
	struct verify_page page = {
		.arena = arena,
		.rows.limit = request->limit,
		.position = buffer_make(arena, 64),
		.differences = buffer_make(arena, 256),
	};
	const struct verify_part *part = read_cursor(verifier, request->after, &page.rows);
	enum status status;

	if (!part)
		return STATUS_BAD_REQUEST;
	status = part->look(verifier->context, session, &page);
	if (status == STATUS_OK)
		write_page(verifier, part, &page, body);
	return status;
}

struct verify_lookup {
	struct read read;
	struct verify_request request;
};

static const struct command_type verify_lookup_type = {"verify_lookup", false};

static const struct verify_lookup *verify_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &verify_lookup_type);
	return (struct verify_lookup *)read;
}

static enum status look_up(struct read *read, struct session *session, struct arena *arena)
{
	const struct verify_lookup *lookup = verify_lookup_of(read);
	struct buffer body = buffer_make(read->command.arena, 256);
	enum status status = verify_look(&lookup->request, session, arena, &body);

	if (status == STATUS_OK)
		read->command.answer = answer_json(200, buffer_slice(&body));
	return status;
}

/* ---- routes ------------------------------------------------------------------------------ */

/* Returns the verifier that the path names. If no role of this process has that verifier, answers
 * the request and returns NULL. */
static const struct verifier *find_verifier(
	const struct verifiers *verifiers, struct request *request)
{
	struct slice name = request->params[0];

	for (size_t i = 0; i < verifiers->count; i++) {
		if (slice_is(name, verifiers->all[i]->name))
			return verifiers->all[i];
	}
	request_answer(request, answer_problem(&request->arena, STATUS_ROLE_NOT_HERE,
					"no role of this process can verify a service \"%.*s\"",
					(int)name.len, name.data));
	return NULL;
}

static void get_page(void *context, struct request *request)
{
	const struct verifier *verifier = find_verifier(context, request);
	struct verify_lookup *lookup;
	struct row_page position = {0};
	struct input input;

	if (!verifier)
		return;
	lookup = arena_new(&request->arena, struct verify_lookup);
	input_init(&input, request);
	lookup->read.command.type = &verify_lookup_type;
	lookup->read.look_up = look_up;
	lookup->request.verifier = verifier;
	lookup->request.after = input_query(&input, "after");
	lookup->request.limit = input_limit(&input, PAGE_LIMIT);
	lookup->read.command.answer_max = ANSWER_LIST_MAX;
	if (!read_cursor(verifier, lookup->request.after, &position))
		input_error(&input, "after", "must be the `next` of an earlier page");
	submit_read(&input, *verifier->lanes, &lookup->read);
}

static void get_verifiers(void *context, struct request *request)
{
	const struct verifiers *verifiers = context;
	struct buffer body = buffer_make(&request->arena, 128);

	buffer_text(&body, "{\"services\":[");
	for (size_t i = 0; i < verifiers->count; i++)
		buffer_format(&body, "%s\"%s\"", i == 0 ? "" : ",", verifiers->all[i]->name);
	buffer_text(&body, "]}");
	request_answer(request, answer_json(200, buffer_slice(&body)));
}

static const char *const page_parameters[] = {"after", "limit", NULL};

void verify_add_routes(struct verifiers *verifiers, struct router *router)
{
	const struct route routes[] = {
		{"GET", "/operator/verify", ACCESS_ADMIN, get_verifiers, verifiers, 0, NULL, NULL},
		{"GET", "/operator/verify/{service}", ACCESS_ADMIN, get_page, verifiers, 0, NULL,
			page_parameters},
	};

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
}

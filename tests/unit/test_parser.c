/*
 * Bytes to requests. Every stream below is parsed as a whole, cut in two at every position, and
 * byte by byte, and must always give the same requests.
 */
#include "check.h"

#include "../fuzz/stream.h"

#define HOST "Host: localhost\r\n"

struct stream_case {
	const char *what;
	struct slice bytes;
	const char *expected;
};

/* clang-format off: one stream per row */
#define CASE(what, bytes, expected)                                                                \
	{                                                                                          \
		what, SLICE(bytes), expected                                                       \
	}

static const struct stream_case streams[] = {
	CASE("one request", "GET /a HTTP/1.1\r\n" HOST "\r\n", "GET /a"),
	CASE("requests in a row",
		"GET /a HTTP/1.1\r\n" HOST "\r\n"
		"HEAD /items/1?x=%41 HTTP/1.1\r\n" HOST "Accept:  */* \r\nEmpty:\r\n\r\n"
		"POST /a HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello"
		"POST /items/1/up HTTP/1.1\r\n" HOST "\r\n",
		"GET /a; HEAD /items/1?x=%41; POST /a {hello}; POST /items/1/up"),
	CASE("empty lines between requests",
		"\r\n\r\nGET /a HTTP/1.1\r\n" HOST "\r\n\r\nGET /a HTTP/1.1\r\n" HOST "\r\n",
		"GET /a; GET /a"),
	CASE("an absolute target", "GET http://localhost/a?b HTTP/1.1\r\n" HOST "\r\n",
		"GET http://localhost/a?b"),
	CASE("a body of no bytes",
		"POST /a HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\nGET /a HTTP/1.1\r\n" HOST
		"\r\n",
		"POST /a; GET /a"),
	CASE("GET with a body",
		"GET /a HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcGET /a HTTP/1.1\r\n" HOST
		"\r\n",
		"GET /a {abc}; GET /a"),
	CASE("a chunked body",
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		"4\r\nabcd\r\n0a\r\n0123456789\r\n1;x=y\r\n!\r\n0\r\n\r\n"
		"GET /a HTTP/1.1\r\n" HOST "\r\n",
		"POST /a {abcd0123456789!}; GET /a"),
	CASE("trailers are read and dropped",
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
		"3\r\nabc\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n"
		"GET /a HTTP/1.1\r\n" HOST "\r\n",
		"POST /a {abc}; GET /a"),
	CASE("NUL and all other bytes in a body",
		"POST /a HTTP/1.1\r\n" HOST "Content-Length: 6\r\n\r\n\r\n\r\n\xff\x01",
		"POST /a {\r\n\r\n\xff\x01}"),
	CASE("a refused request is read to its end, its body thrown away, the next served",
		"POST /nowhere HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"
		"PUT /a HTTP/1.1\r\n" HOST "\r\n"
		"GET /%2e HTTP/1.1\r\n" HOST "\r\n"
		"GET /a HTTP/1.1\r\nHost: evil.org\r\n\r\n"
		"GET /a HTTP/1.1\r\n" HOST "\r\n",
		"POST /nowhere 404; PUT /a 405; GET /%2e 400; GET /a 403; GET /a"),
	CASE("Host is required once", "GET /a HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\n" HOST HOST "\r\n",
		"GET /a 400; GET /a 400"),
	CASE("HTTP/1.0 closes and needs no Host", "GET /a HTTP/1.0\r\n\r\nGET /a HTTP/1.0\r\n\r\n",
		"GET /a close"),
	CASE("HTTP/1.0 closes even where it asks to stay",
		"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /a HTTP/1.0\r\n\r\n",
		"GET /a close"),
	CASE("Connection: close closes",
		"POST /a HTTP/1.1\r\n" HOST "Connection: close\r\nContent-Length: 2\r\n\r\nab"
		"GET /a HTTP/1.1\r\n" HOST "\r\n",
		"POST /a {ab} close"),
	CASE("an upgrade is not taken up",
		"GET /a HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
		"GET /a HTTP/1.1\r\n" HOST "\r\n",
		"GET /a; GET /a"),
	CASE("nothing is read behind CONNECT",
		"CONNECT localhost:80 HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\n"
		"GET /a HTTP/1.1\r\n" HOST "\r\n",
		"CONNECT localhost:80 400 close"),
	CASE("OPTIONS *", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * 400"),
	CASE("the client waits for 100 Continue",
		"POST /a HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\nab"
		"GET /a HTTP/1.1\r\n" HOST "\r\n",
		"CONTINUE; POST /a {ab}; GET /a"),
	CASE("the client waits with a chunked body",
		"POST /a HTTP/1.1\r\n" HOST
		"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
		"2\r\nab\r\n0\r\n\r\n",
		"CONTINUE; POST /a {ab}"),
	CASE("nothing to continue without a body",
		"POST /a HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n\r\n"
		"POST /a HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
		"POST /a; POST /a"),
	CASE("HTTP/1.0 cannot wait",
		"POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
		"POST /a {ab} close"),
	CASE("a refusal is told to who waits, without the body",
		"POST /nowhere HTTP/1.1\r\n" HOST
		"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
		"BROKEN 404"),
	CASE("another expectation fails",
		"POST /a HTTP/1.1\r\n" HOST "Expect: a miracle\r\nContent-Length: 2\r\n\r\nab",
		"BROKEN 417"),
	CASE("a length over the limit is refused before the body",
		"POST /small HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\n", "BROKEN 413"),
	CASE("a length at the limit is not",
		"POST /small HTTP/1.1\r\n" HOST "Content-Length: 8\r\n\r\n12345678",
		"POST /small {12345678}"),
	CASE("a length over the limit is not asked for",
		"POST /small HTTP/1.1\r\n" HOST "Content-Length: 9\r\nExpect: 100-continue\r\n\r\n",
		"BROKEN 413"),
	CASE("chunks over the limit are refused where they pass it",
		"POST /small HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		"5\r\n12345\r\n4\r\n6789\r\n0\r\n\r\n",
		"BROKEN 413"),
	CASE("chunks at the limit are not",
		"POST /small HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		"5\r\n12345\r\n3\r\n678\r\n0\r\n\r\n",
		"POST /small {12345678}"),
	CASE("a request that is cut off in its line", "GET /a HT", "in head"),
	CASE("a request that is cut off in a header", "GET /a HTTP/1.1\r\nHos", "in head"),
	CASE("a request that is cut off in its body",
		"POST /a HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhel", "in body"),
	CASE("broken behind good",
		"POST /a HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nabnonsense\r\n\r\n",
		"POST /a {ab}; BROKEN 400"),
	CASE("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "BROKEN 400"),
	CASE("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "BROKEN 400"),
	CASE("an unknown method is refused like one that the path does not support",
		"QUERY /a HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab"
		"GET /a HTTP/1.1\r\n" HOST "\r\n",
		"UNKNOWN /a 405; GET /a"),
	CASE("the beginning of a method, and one that goes on",
		"GE /nowhere HTTP/1.1\r\n" HOST "\r\nGETS /a HTTP/1.1\r\n" HOST "\r\n",
		"UNKNOWN /nowhere 404; UNKNOWN /a 405"),
	CASE("a small method", "get /a HTTP/1.1\r\n" HOST "\r\n", "UNKNOWN /a 405"),
	CASE("no method behind a body",
		"POST /a HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab /a HTTP/1.1\r\n\r\n",
		"POST /a {ab}; BROKEN 400"),
	CASE("two spaces behind an unknown method", "QUERY  /a HTTP/1.1\r\n" HOST "\r\n",
		"BROKEN 400"),
	CASE("a byte that no method has", "QUE:RY /a HTTP/1.1\r\n" HOST "\r\n", "BROKEN 400"),
	CASE("an unknown method that is cut off", "QUER", "in head"),
	CASE("an endless method",
		"QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ",
		"BROKEN 400"),
	CASE("another version", "GET /a HTTP/1.2\r\n" HOST "\r\n", "BROKEN 400"),
	CASE("no version", "GET /a\r\n\r\n", "GET /a 400 close"),
	CASE("two lengths",
		"POST /a HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
		"BROKEN 400"),
	CASE("a list of lengths", "POST /a HTTP/1.1\r\n" HOST "Content-Length: 2, 2\r\n\r\nab",
		"BROKEN 400"),
	CASE("a length with a sign", "POST /a HTTP/1.1\r\n" HOST "Content-Length: +2\r\n\r\nab",
		"BROKEN 400"),
	CASE("a length past 64 bits",
		"POST /a HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551618\r\n\r\nab",
		"BROKEN 400"),
	CASE("a length and chunks",
		"POST /a HTTP/1.1\r\n" HOST
		"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
		"0\r\n\r\n",
		"BROKEN 400"),
	CASE("chunks and a length",
		"POST /a HTTP/1.1\r\n" HOST
		"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
		"0\r\n\r\n",
		"BROKEN 400"),
	CASE("chunked twice",
		"POST /a HTTP/1.1\r\n" HOST
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"BROKEN 400"),
	CASE("chunked and an empty coding",
		"POST /a HTTP/1.1\r\n" HOST
		"Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n",
		"BROKEN 400"),
	CASE("a coding before chunked",
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"BROKEN 400"),
	CASE("a coding behind chunked",
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
		"BROKEN 400"),
	CASE("a coding that is almost chunked",
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"BROKEN 400"),
	CASE("a chunk size that is no number",
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"BROKEN 400"),
	CASE("a chunk size past 64 bits",
		"POST /a HTTP/1.1\r\n" HOST
		"Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\nab\r\n",
		"BROKEN 400"),
	CASE("a chunk without its end",
		"POST /a HTTP/1.1\r\n" HOST
		"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
		"BROKEN 400"),
	CASE("two spaces before the target", "GET  /a HTTP/1.1\r\n" HOST "\r\n", "BROKEN 400"),
	CASE("white space before the colon", "GET /a HTTP/1.1\r\n" HOST "X-A : b\r\n\r\n",
		"BROKEN 400"),
	CASE("white space in a name", "GET /a HTTP/1.1\r\n" HOST "X A: b\r\n\r\n", "BROKEN 400"),
	CASE("white space before the first header", "GET /a HTTP/1.1\r\n Host: localhost\r\n\r\n",
		"BROKEN 400"),
	CASE("a folded header", "GET /a HTTP/1.1\r\n" HOST "X-A: b\r\n c\r\n\r\n", "BROKEN 400"),
	CASE("a folded header with a tab", "GET /a HTTP/1.1\r\n" HOST "X-A: b \r\n\tc\r\n\r\n",
		"BROKEN 400"),
	CASE("a header without a name", "GET /a HTTP/1.1\r\n" HOST ": b\r\n\r\n", "BROKEN 400"),
	CASE("a header without a colon", "GET /a HTTP/1.1\r\n" HOST "X-A\r\n\r\n", "BROKEN 400"),
	CASE("NUL in a header", "GET /a HTTP/1.1\r\n" HOST "X-A: a\0b\r\n\r\n", "BROKEN 400"),
	CASE("a bare line feed", "GET /a HTTP/1.1\r\n" HOST "X-A: a\nX-B: b\r\n\r\n", "BROKEN 400"),
	CASE("a bare carriage return", "GET /a HTTP/1.1\r\n" HOST "X-A: a\rX-B: b\r\n\r\n",
		"BROKEN 400"),
	CASE("a tab in the target", "GET /a\tb HTTP/1.1\r\n" HOST "\r\n", "BROKEN 400"),
	CASE("a raw byte in the target", "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", "BROKEN 400"),
	CASE("a fragment in the target", "GET /a#b HTTP/1.1\r\n" HOST "\r\n", "GET /a#b 400"),
};
/* clang-format on */

/* ---- how the bytes arrive ---------------------------------------------------------------- */

struct fixture {
	struct arena arena;
	struct router *router;
	struct admission admission;
};

static int set_up(void **state)
{
	static struct fixture fixture;

	arena_init(&fixture.arena, 64 * 1024);
	fixture.router = stream_router_new();
	fixture.admission = stream_admission(fixture.router);
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	router_free(fixture->router);
	arena_release(&fixture->arena);
	return 0;
}

/* Cuts off `first` bytes, then pieces of `rest` bytes. */
struct cuts {
	struct stream_cuts base;
	size_t first;
	size_t rest;
};

static size_t next_piece(struct stream_cuts *base, size_t left)
{
	struct cuts *cuts = (struct cuts *)base;
	size_t len = cuts->first > 0 ? cuts->first : cuts->rest;

	cuts->first = 0;
	return len < left ? len : left;
}

static struct cuts cut_at(size_t first, size_t rest)
{
	return (struct cuts){.base.next = next_piece, .first = first, .rest = rest};
}

static struct stream_record run(struct fixture *fixture, struct slice bytes, struct cuts *cuts)
{
	return stream_run(&fixture->arena, &fixture->admission, bytes, cuts ? &cuts->base : NULL);
}

static void assert_cut_gives(struct fixture *fixture, const struct stream_case *stream,
	const struct stream_record *whole, struct cuts cuts)
{
	size_t first = cuts.first;
	struct stream_record record = run(fixture, stream->bytes, &cuts);

	if (!stream_same(&record, whole))
		fail_msg("%s, cut at %zu: \"%.*s\" is not \"%.*s\"", stream->what, first,
			(int)record.summary.len, record.summary.data, (int)whole->summary.len,
			whole->summary.data);
}

static void every_stream_gives_its_requests(void **state)
{
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(streams); i++) {
		struct stream_record record = run(fixture, streams[i].bytes, NULL);

		if (!slice_is(record.summary, streams[i].expected))
			fail_msg("%s: \"%.*s\"", streams[i].what, (int)record.summary.len,
				record.summary.data);
		arena_reset(&fixture->arena);
	}
}

static void every_stream_gives_the_same_however_it_is_cut_in_two(void **state)
{
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(streams); i++) {
		for (size_t at = 1; at < streams[i].bytes.len; at++) {
			struct stream_record whole = run(fixture, streams[i].bytes, NULL);

			assert_cut_gives(
				fixture, &streams[i], &whole, cut_at(at, streams[i].bytes.len));
			arena_reset(&fixture->arena);
		}
	}
}

static void every_stream_gives_the_same_byte_by_byte(void **state)
{
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(streams); i++) {
		struct stream_record whole = run(fixture, streams[i].bytes, NULL);

		for (size_t piece = 1; piece < 8; piece++)
			assert_cut_gives(fixture, &streams[i], &whole, cut_at(piece, piece));
		arena_reset(&fixture->arena);
	}
}

/* ---- limits ------------------------------------------------------------------------------ */

/* Returns `before`, `count` times `filler`, and `after`, in memory of the arena. */
static struct slice padded(struct fixture *fixture, const char *before, size_t count,
	const char *filler, const char *after)
{
	struct buffer bytes =
		buffer_make(&fixture->arena, count * strlen(filler) + strlen(before) + 64);

	buffer_text(&bytes, before);
	for (size_t i = 0; i < count; i++)
		buffer_text(&bytes, filler);
	buffer_text(&bytes, after);
	return buffer_slice(&bytes);
}

/* Returns the status of the answer to `bytes`, or 0 if the request is admitted, however the bytes
 * are cut. */
static int answer_to(struct fixture *fixture, struct slice bytes)
{
	static const size_t pieces[] = {1, 7, 4096};
	struct stream_case stream = {"padded", bytes, NULL};
	struct stream_record whole = run(fixture, bytes, NULL);

	for (size_t i = 0; i < COUNT_OF(pieces); i++)
		assert_cut_gives(fixture, &stream, &whole, cut_at(pieces[i], pieces[i]));
	if (whole.refusal.http_status == 0)
		assert_false(has_text(whole.summary, "in "));
	return whole.refusal.http_status;
}

static void a_target_of_64_kib_is_read_and_one_byte_more_is_414(void **state)
{
	static const char end[] = " HTTP/1.1\r\n" HOST "\r\n";
	size_t room = TARGET_MAX - strlen("/a?");

	assert_int_equal(answer_to(*state, padded(*state, "GET /a?", room, "x", end)), 0);
	assert_int_equal(answer_to(*state, padded(*state, "GET /a?", room + 1, "x", end)), 414);
	assert_int_equal(answer_to(*state, padded(*state, "GET /a?", 200000, "x", "")), 414);
}

static void headers_of_16_kib_are_read_and_one_byte_more_is_431(void **state)
{
	static const char start[] = "GET /a HTTP/1.1\r\n" HOST "X-A: ";
	size_t room = HEADER_BYTES_MAX - strlen("HostlocalhostX-A");

	assert_int_equal(answer_to(*state, padded(*state, start, room, "x", "\r\n\r\n")), 0);
	assert_int_equal(answer_to(*state, padded(*state, start, room + 1, "x", "\r\n\r\n")), 431);
	assert_int_equal(answer_to(*state, padded(*state, start, 200000, "x", "")), 431);
}

static void a_header_name_counts_against_the_16_kib(void **state)
{
	static const char start[] = "GET /a HTTP/1.1\r\n" HOST;

	assert_int_equal(
		answer_to(*state, padded(*state, start, HEADER_BYTES_MAX, "x", ": \r\n\r\n")), 431);
}

static void trailers_count_against_the_16_kib(void **state)
{
	static const char start[] =
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: ";

	assert_int_equal(answer_to(*state, padded(*state, start, 100, "x", "\r\n\r\n")), 0);
	assert_int_equal(
		answer_to(*state, padded(*state, start, HEADER_BYTES_MAX, "x", "\r\n\r\n")), 431);
}

static void there_may_be_64_headers_and_not_65(void **state)
{
	static const char start[] = "GET /a HTTP/1.1\r\n" HOST;

	assert_int_equal(answer_to(*state, padded(*state, start, 63, "A: b\r\n", "\r\n")), 0);
	assert_int_equal(answer_to(*state, padded(*state, start, 64, "A: b\r\n", "\r\n")), 431);
	assert_int_equal(answer_to(*state, padded(*state, start, 300, "A:\r\n", "\r\n")), 431);
	assert_int_equal(
		answer_to(*state, padded(*state, start, 63, "A: b\r\n", ": b\r\n\r\n")), 431);
}

static void a_body_of_64_kib_is_read_and_one_byte_more_is_413(void **state)
{
	static const char start[] = "POST /a HTTP/1.1\r\n" HOST "Content-Length: 65536\r\n\r\n";
	static const char more[] = "POST /a HTTP/1.1\r\n" HOST "Content-Length: 65537\r\n\r\n";

	assert_int_equal(answer_to(*state, padded(*state, start, BODY_MAX_DEFAULT, "x", "")), 0);
	assert_int_equal(answer_to(*state, padded(*state, more, 10, "x", "")), 413);
}

static void a_chunked_body_past_64_kib_is_413(void **state)
{
	static const char start[] =
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n";
	static const char chunk[] = "10\r\n0123456789abcdef\r\n";

	assert_int_equal(answer_to(*state, padded(*state, start, 4096, chunk, "0\r\n\r\n")), 0);
	assert_int_equal(answer_to(*state, padded(*state, start, 4097, chunk, "0\r\n\r\n")), 413);
}

static void a_limit_holds_for_each_request_by_itself(void **state)
{
	struct fixture *fixture = *state;
	struct slice one =
		padded(fixture, "GET /a HTTP/1.1\r\n" HOST "X-A: ", 16000, "x", "\r\n\r\n");
	struct buffer two = buffer_make(&fixture->arena, 2 * one.len);
	struct stream_record record;

	buffer_add(&two, one);
	buffer_add(&two, one);
	record = run(fixture, buffer_slice(&two), NULL);
	assert_slice(record.summary, "GET /a; GET /a");
}

/* ---- what a request holds ---------------------------------------------------------------- */

static void assert_refused_with(struct fixture *fixture, const char *bytes, const char *part)
{
	struct stream_record record = run(fixture, slice_of(bytes), NULL);

	assert_contains(record.refusal.body, part);
}

static void a_broken_stream_is_told_why_as_problem_json(void **state)
{
	assert_refused_with(*state, "nonsense\r\n", "\"code\":\"BAD_REQUEST\"");
	assert_refused_with(*state, "nonsense\r\n", "not valid HTTP/1.1");
	assert_refused_with(*state, "POST /small HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\n",
		"\"code\":\"BODY_TOO_LARGE\"");
}

static struct request *made;

static struct request *make_one(void *context)
{
	assert_null(made);
	made = context;
	memset(made, 0, sizeof(*made));
	arena_init(&made->arena, 1024);
	return made;
}

/* Feeds `bytes` to a new parser and returns the request that is being read. */
static struct request *read_into(struct parser *parser, const struct fixture *fixture,
	struct request *request, const char *bytes)
{
	struct slice input = slice_of(bytes);

	made = NULL;
	parser_init(parser, &clock_system, &fixture->admission, make_one, request);
	(void)parser_feed(parser, &input);
	return made;
}

static void headers_are_found_by_name_whatever_the_case_and_trimmed(void **state)
{
	struct parser parser;
	struct request request;

	read_into(&parser, *state, &request,
		"POST /items/7/up HTTP/1.1\r\nhOST: localhost\r\nX-A: \t b c \t\r\nx-a: d\r\n"
		"Empty:\r\nX-Request-Id: r-1\r\n\r\n");
	assert_slice(request_header(&request, "Host"), "localhost");
	assert_slice(request_header(&request, "x-A"), "b c");
	assert_int_equal(request_header_count(&request, "X-A"), 2);
	assert_non_null(request_header(&request, "empty").data);
	assert_slice(request_header(&request, "Empty"), "");
	assert_null(request_header(&request, "X-B").data);
	assert_slice(request.id, "r-1");
	assert_slice(request.params[0], "7");
	assert_slice(request.params[1], "up");
	assert_false(request.safe);
	arena_release(&request.arena);
}

static void trailers_are_no_headers(void **state)
{
	struct parser parser;
	struct request request;

	read_into(&parser, *state, &request,
		"POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		"1\r\nx\r\n0\r\nX-Sum: 1\r\nHost: evil.org\r\n\r\n");
	assert_int_equal(parser.stage, STAGE_IDLE);
	assert_int_equal(request.header_count, 2);
	assert_null(request_header(&request, "X-Sum").data);
	assert_slice(request.body, "x");
	arena_release(&request.arena);
}

static void get_and_head_are_safe_and_head_has_no_body(void **state)
{
	static const struct {
		const char *bytes;
		bool safe;
		bool head_only;
	} cases[] = {
		{"GET /a HTTP/1.1\r\n" HOST "\r\n", true, false},
		{"HEAD /a HTTP/1.1\r\n" HOST "\r\n", true, true},
		{"POST /a HTTP/1.1\r\n" HOST "\r\n", false, false},
		{"DELETE /a HTTP/1.1\r\n" HOST "\r\n", false, false},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct parser parser;
		struct request request;

		read_into(&parser, *state, &request, cases[i].bytes);
		assert_int_equal(request.safe, cases[i].safe);
		assert_int_equal(request.head_only, cases[i].head_only);
		arena_release(&request.arena);
	}
}

static void a_request_that_takes_too_long_is_408(void **state)
{
	static const char *const cases[][2] = {
		{"GET /a HT", "the head"},
		{"POST /a HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nab", "the body"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct parser parser;
		struct request request;

		read_into(&parser, *state, &request, cases[i][0]);
		assert_ptr_equal(parser_time_out(&parser), &request);
		assert_int_equal(request.answer.http_status, 408);
		assert_false(request.keep_alive);
		assert_contains(request.answer.body, cases[i][1]);
		assert_null(parser.request);
		arena_release(&request.arena);
	}
}

static void nothing_is_begun_before_the_first_byte_of_a_request(void **state)
{
	struct parser parser;
	struct request request;

	assert_null(read_into(&parser, *state, &request, "\r\n\r\n"));
	assert_int_equal(parser.stage, STAGE_IDLE);
	assert_ptr_equal(read_into(&parser, *state, &request, "G"), &request);
	assert_int_equal(parser.stage, STAGE_HEAD);
	arena_release(&request.arena);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_stream_gives_its_requests),
		TEST(every_stream_gives_the_same_however_it_is_cut_in_two),
		TEST(every_stream_gives_the_same_byte_by_byte),
		TEST(a_target_of_64_kib_is_read_and_one_byte_more_is_414),
		TEST(headers_of_16_kib_are_read_and_one_byte_more_is_431),
		TEST(a_header_name_counts_against_the_16_kib),
		TEST(trailers_count_against_the_16_kib),
		TEST(there_may_be_64_headers_and_not_65),
		TEST(a_body_of_64_kib_is_read_and_one_byte_more_is_413),
		TEST(a_chunked_body_past_64_kib_is_413),
		TEST(a_limit_holds_for_each_request_by_itself),
		TEST(a_broken_stream_is_told_why_as_problem_json),
		TEST(headers_are_found_by_name_whatever_the_case_and_trimmed),
		TEST(trailers_are_no_headers),
		TEST(get_and_head_are_safe_and_head_has_no_body),
		TEST(a_request_that_takes_too_long_is_408),
		TEST(nothing_is_begun_before_the_first_byte_of_a_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

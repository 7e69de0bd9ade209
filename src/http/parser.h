/*
 * Bytes of a connection to requests. llhttp (strict) does the grammar; this adds the limits, copies
 * what is kept into the request's arena, and finds the route as soon as the head is complete, so
 * that the body's limit is known before it is read. The same bytes give the same requests however
 * they are split.
 */
#ifndef QUIPU_HTTP_PARSER_H
#define QUIPU_HTTP_PARSER_H

#include <llhttp.h>

#include "base/clock.h"
#include "http/admission.h"
#include "http/request.h"
#include "http/router.h"

#define TARGET_MAX (64 * 1024)
#define HEADER_BYTES_MAX (16 * 1024)

enum parse_event {
	PARSE_MORE,     /* all input used, more is needed */
	PARSE_REQUEST,  /* take parser->request; it may have its answer already (a refusal) */
	PARSE_CONTINUE, /* the client waits for 100 Continue; feed on */
	PARSE_BROKEN,   /* take parser->request, which has its answer; nothing can follow */
};

enum parse_stage { STAGE_IDLE, STAGE_HEAD, STAGE_BODY };

struct parser {
	llhttp_t llhttp;
	const struct clock *clock;
	const struct admission *admission;
	struct request *(*make)(void *context);
	void *context;

	struct request *request; /* being read, NULL between requests */
	enum parse_stage stage;
	int64_t head_done_ns;
	size_t header_bytes;
	size_t body_max;
	size_t body_bytes; /* that came, kept or thrown away */
	struct buffer body;
	struct answer refusal; /* why the head or body cannot be read on */
	bool in_trailers;
	const char *input; /* being fed */
	char tail[2];      /* the last bytes of what was fed before */
};

/*
 * `make(context)` returns an empty request with its started_ns whenever one begins; `clock` says
 * when its head was complete.
 */
void parser_init(struct parser *parser, const struct clock *clock,
	const struct admission *admission, struct request *(*make)(void *context), void *context);

/* Reads on; `input` moves behind what was used. */
enum parse_event parser_feed(struct parser *parser, struct slice *input);

/* Hands the request of PARSE_REQUEST or PARSE_BROKEN over. */
struct request *parser_take(struct parser *parser);

/* Ends the request being read with 408, as PARSE_BROKEN would. */
struct request *parser_time_out(struct parser *parser);

#endif

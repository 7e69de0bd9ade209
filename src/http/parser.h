/*
 * Turns the bytes of a connection into requests. llhttp (strict) parses the grammar; this module
 * adds the limits, copies the needed parts into the request's arena, and runs admission as soon as
 * the head is complete, so that the body's limit is known before the body is read. The same bytes
 * yield the same requests, however they are split into reads. Used only on the loop's thread.
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
#define METHOD_BYTES_MAX 64 /* the maximum length of a method that llhttp does not know */

enum parse_event {
	PARSE_MORE, /* all input is used up, and more is needed */
	/* a request is complete: take it. It may already have an answer, if it was refused */
	PARSE_REQUEST,
	PARSE_CONTINUE, /* the client waits for 100 Continue; keep feeding */
	PARSE_BROKEN,   /* take the request, which has an answer; nothing can be parsed after it */
};

enum parse_stage { STAGE_IDLE, STAGE_HEAD, STAGE_BODY };

struct parser {
	llhttp_t llhttp;
	const struct clock *clock;
	const struct admission *admission;
	struct request *(*make)(void *context);
	void *context;

	struct request *request; /* the request that is being read, or NULL between requests */
	enum parse_stage stage;
	int64_t head_done_ns;
	size_t header_bytes;
	size_t body_max;
	size_t body_bytes; /* bytes received, whether kept or discarded */
	struct buffer body;
	struct answer refusal; /* set when a callback stops the parser */
	bool in_trailers;
	const char *input; /* the input of the current parser_feed() */
	bool skips_method; /* llhttp does not know the method of this request */
	bool has_stand_in; /* llhttp parses the rest of this request after another method */
	size_t skipped;    /* how many bytes of the unknown method were skipped */
	char tail[2];      /* the last bytes of the previous parser_feed() */
};

/*
 * `make(context)` is called whenever a request begins; it returns an empty request with
 * `started_ns` set. `clock` and `admission` must outlive the parser.
 */
void parser_init(struct parser *parser, const struct clock *clock,
	const struct admission *admission, struct request *(*make)(void *context), void *context);

/* Parses `*input`, which must not be empty, and moves it past the bytes that were used. */
enum parse_event parser_feed(struct parser *parser, struct slice *input);

/* Returns the request that is being read or, after PARSE_REQUEST or PARSE_BROKEN, the request that
 * has ended. The caller owns it. */
struct request *parser_take(struct parser *parser);

/* Answers the request that is being read with 408 and returns it. Nothing can be parsed after
 * it. */
struct request *parser_time_out(struct parser *parser);

#endif

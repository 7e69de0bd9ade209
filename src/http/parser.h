/*
 * Turns the bytes of a connection into requests. llhttp, in its strict mode, parses the grammar.
 * This module adds the limits and copies the needed parts into the request's arena. It runs
 * admission as soon as the head is complete, so that the body's limit is known before the body is
 * read. The same bytes yield the same requests, in whatever pieces the bytes arrive. Used only on
 * the loop's thread.
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
#define METHOD_BYTES_MAX 64 /* how many bytes of an unknown method may be skipped */

enum parse_event {
	PARSE_MORE, /* nothing is complete yet: feed the rest of the input, or more input */
	/* a request is complete: call parser_take(). A refused request already has an answer */
	PARSE_REQUEST,
	PARSE_CONTINUE, /* the client waits for 100 Continue; keep feeding */
	PARSE_BROKEN,   /* call parser_take(); the request has an answer, and parsing is over */
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
	size_t body_bytes; /* bytes of the body received, whether kept or discarded */
	struct buffer body;
	struct answer refusal; /* set when a callback refuses the request */
	bool in_trailers;
	const char *input; /* the input of the current parser_feed() */
	bool skips_method; /* the next bytes belong to a method that llhttp does not know */
	bool has_stand_in; /* feed_stand_in() has replaced the unknown method */
	size_t skipped;    /* how many bytes of the unknown method were skipped */
	char tail[2];      /* the two bytes that came before the current input */
};

/*
 * `make(context)` is called whenever a request begins; it returns an empty request with
 * `started_ns` set. `clock` and `admission` must outlive the parser.
 */
void parser_init(struct parser *parser, const struct clock *clock,
	const struct admission *admission, struct request *(*make)(void *context), void *context);

/* Parses `*input`, which must not be empty, and moves its start past the bytes that were used.
 * Returns an event that the caller has to handle. */
enum parse_event parser_feed(struct parser *parser, struct slice *input);

/* Returns the current request, which the caller owns from now on. After PARSE_REQUEST the request
 * is complete; after PARSE_BROKEN it could not be parsed; otherwise it is still being read. */
struct request *parser_take(struct parser *parser);

/* Sets the answer 408 for the request that is being read, and returns the request. Nothing can be
 * parsed afterwards. */
struct request *parser_time_out(struct parser *parser);

#endif

/*
 * Bytes through the parser as a connection feeds them, written down so that two ways of cutting the
 * same bytes can be compared. Shared by tests/unit/test_parser.c and fuzz_request.c.
 *
 * Each piece is fed from memory of its own that is freed before the next one, so that a sanitizer
 * tells when the parser keeps a pointer into it or reads behind its end.
 */
#ifndef QUIPU_TESTS_STREAM_H
#define QUIPU_TESTS_STREAM_H

#include "http/parser.h"

/* Where a stream is cut: next() gives the length of the next piece, from 1 to `left`. */
struct stream_cuts {
	size_t (*next)(struct stream_cuts *cuts, size_t left);
};

struct stream_record {
	/*
	 * To read: "GET /a; POST /b {body}; CONTINUE; GET /c 404 close; BROKEN 400; in head".
	 * A number is the answer that the parser itself gave.
	 */
	struct slice summary;
	/* To compare: the same with every header, parameter and answer. */
	struct slice full;
	/* The answer of what broke the stream, http_status 0: nothing did. */
	struct answer refusal;
};

/* Small routes for all kinds of bodies, and an admission with the checks of loopback on. */
struct router *stream_router_new(void);
struct admission stream_admission(const struct router *router);

/* Runs `bytes`, cut by `cuts` (NULL: whole), through a new parser. Everything lies in `arena`. */
struct stream_record stream_run(struct arena *arena, const struct admission *admission,
	struct slice bytes, struct stream_cuts *cuts);

/*
 * Whether two records of the same bytes agree. Where a head has two faults (it is over a limit, and
 * not HTTP behind that) either may be told: llhttp reports a run of bytes when the run or the piece
 * ends, so which fault is met first depends on the cuts.
 */
bool stream_same(const struct stream_record *a, const struct stream_record *b);

#endif

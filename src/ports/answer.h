/*
 * What a request is answered with. Everything that a repeated request must get again, byte for
 * byte, is in the first four fields; they are what flow/idempotency stores.
 */
#ifndef QUIPU_PORTS_ANSWER_H
#define QUIPU_PORTS_ANSWER_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

/* One wrong field of a request: {"field":"amount","message":"must be an integer from 1"}. */
struct field_error {
	const char *field;
	const char *message;
};

/* What a refusal says, apart from the form in which it is said. */
struct problem {
	enum status status;
	struct slice detail;
	const struct field_error *errors;
	size_t error_count;
	struct slice members; /* more of problem+json, each with a comma in front */
};

struct answer {
	int http_status; /* 0: not answered yet */
	struct slice content_type;
	struct slice location;
	struct slice body;

	struct slice headers; /* more header lines, each ending in CR LF */
	bool replayed;
	/* The body is problem+json that says this, and may still be said in another form (see
	 * http/router.h). NULL: the body is as it shall be. */
	const struct problem *problem;
};

/* A success with a JSON body. */
struct answer answer_json(int http_status, struct slice body);

/* 204. */
struct answer answer_empty(void);

/*
 * problem+json for `status`, written into `arena`; `detail` is printf-like and says what happened
 * and what to do. A status that helps to retry gets Retry-After.
 */
struct answer answer_problem(struct arena *arena, enum status status, const char *detail, ...)
	QP_PRINTF(3, 4);

/* The same with more members, JSON that begins with a comma: `,"entitlement":{…}`. */
struct answer answer_problem_with(
	struct arena *arena, enum status status, struct slice members, const char *detail);

/* Tells where the next page of a list is, in a Link header; `path` is raw, without its query. */
void answer_add_next(struct answer *answer, struct arena *arena, struct slice path, size_t limit,
	struct slice after);

/* 400 with the list of wrong fields. */
struct answer answer_invalid(
	struct arena *arena, const struct field_error *errors, size_t error_count);

/*
 * The usual text for a status that is not the request's fault: OVERLOADED, STORE_UNAVAILABLE,
 * BUS_UNAVAILABLE, OUTCOME_UNKNOWN, INTERNAL.
 */
struct answer answer_failure(struct arena *arena, enum status status);

#endif

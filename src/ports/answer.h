/*
 * The answer to a request. The first four members of struct answer are stored under an
 * Idempotency-Key (flow/keyed_writes.h), so that a repeated request gets them byte for byte.
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

/* The content of a refusal, independent of its format. */
struct problem {
	enum status status;
	struct slice detail;
	const struct field_error *errors;
	size_t error_count;
	struct slice members; /* more members of problem+json, each with a comma in front */
};

struct answer {
	int http_status; /* 0 until the request is answered */
	struct slice content_type;
	struct slice location;
	struct slice body;

	struct slice headers; /* more header lines, each ending in CR LF */
	bool replayed;
	/* The content of a body in problem+json, from which the connection may render another
	 * format (see http/router.h). NULL if the body is final. */
	const struct problem *problem;
};

/* Returns an answer with a JSON body, which is not copied. */
struct answer answer_json(int http_status, struct slice body);

/* Returns a 204. */
struct answer answer_empty(void);

/*
 * Returns problem+json for `status`, allocated from `arena`. `detail` is a printf format; the text
 * says what happened and what to do about it. A 503 gets Retry-After.
 */
struct answer answer_problem(struct arena *arena, enum status status, const char *detail, ...)
	QP_PRINTF(3, 4);

/* Like answer_problem(), but also appends `members` to the JSON object. `members` begins with a
 * comma, such as `,"entitlement":{…}`. `detail` is plain text, not a format. */
struct answer answer_problem_with(
	struct arena *arena, enum status status, struct slice members, const char *detail);

/* A list gets no further element once its body has this many bytes; the other elements are on the
 * next page. */
#define ANSWER_LIST_MAX (1024 * 1024)

/* Returns an estimate of the most memory that a list can take: `limit` elements of at most
 * `element_max` bytes each, but not more than ANSWER_LIST_MAX. */
size_t answer_list_max(size_t limit, size_t element_max);

/* Adds a Link header that says that the next page of a list is at `target`. */
void answer_link_next(struct answer *answer, struct arena *arena, struct slice target);

/* Adds a Link header to the next page, which is at `path` with the query parameters `limit` and
 * `after`. `path` is still percent-encoded and has no query. */
void answer_add_next(struct answer *answer, struct arena *arena, struct slice path, size_t limit,
	struct slice after);

/* Returns a 400 that lists the wrong fields. */
struct answer answer_invalid(
	struct arena *arena, const struct field_error *errors, size_t error_count);

/* Like answer_invalid(), but with the given status instead of BAD_REQUEST, and the given detail. */
struct answer answer_invalid_as(struct arena *arena, enum status status, struct slice detail,
	const struct field_error *errors, size_t error_count);

/*
 * Returns problem+json with the usual text for a status that the client did not cause: OVERLOADED,
 * STORE_UNAVAILABLE, BUS_UNAVAILABLE, OUTCOME_UNKNOWN, INTERNAL.
 */
struct answer answer_failure(struct arena *arena, enum status status);

#endif

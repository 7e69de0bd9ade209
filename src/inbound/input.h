/*
 * Reads a request into values, and collects everything that is wrong with it so that the client is
 * told at once. Use: input_init(), read fields, then `if (input_refuse(&input)) return;`. On the
 * loop.
 */
#ifndef QUIPU_INBOUND_INPUT_H
#define QUIPU_INBOUND_INPUT_H

#include "base/json.h"
#include "http/request.h"

#define INPUT_ERRORS_MAX 16
#define ID_BYTES_MAX 128
#define IDEMPOTENCY_KEY_BYTES_MAX 255
#define LIST_LIMIT_MAX 1000

struct input {
	struct request *request;
	json_t *body; /* NULL: none was sent */
	struct field_error errors[INPUT_ERRORS_MAX];
	size_t error_count;
	struct answer refusal; /* http_status 0: nothing to refuse as a whole */
};

/* Starts reading `request` without its body. */
void input_init(struct input *input, struct request *request);

/* Parses the JSON body. An absent or empty body is no error: every field then counts as absent. */
void input_read_body(struct input *input);

/*
 * Ends the reading; frees the parsed body. true: the request was refused and has its answer.
 * Strings read from the body were copied and stay valid.
 */
bool input_refuse(struct input *input);

/* Notes that `field` is wrong. `message` is kept, not copied. */
void input_error(struct input *input, const char *field, const char *message);

/* Checks an id from the path or query: 1 to 128 bytes, no control characters. */
void input_check_id(struct input *input, const char *field, struct slice id);

/* An id from the body, required. */
struct slice input_id(struct input *input, const char *field);

/*
 * An id from the body, required, that may also be sent as an integer from 0 (1001 and "1001" are
 * the same id); tells which it was. `alias` is another name that the field may have.
 */
struct slice input_id_or_number(
	struct input *input, const char *field, const char *alias, bool *is_number);

/* A list of 1 to `most` (at most 1000) ids from the body, required; NULL where it is wrong. */
struct slice *input_ids(struct input *input, const char *field, size_t most, size_t *count);

/* A text from the body, required, not blank, of at most `max` bytes. */
struct slice input_text(struct input *input, const char *field, size_t max, const char *message);

/* The value of a query parameter, the last one if it was given twice; {NULL, 0} where there is
 * none.
 */
struct slice input_query(struct input *input, const char *name);

/* The query parameter `limit` of a list: 1 to LIST_LIMIT_MAX, or `fallback` where there is none. */
size_t input_limit(struct input *input, size_t fallback);

/* Refuses the request with IDEMPOTENCY_KEY_REQUIRED where the header is missing. */
void input_require_key(struct input *input);

/* The Idempotency-Key header, {NULL, 0} where there is none. Bare, or as a quoted string. */
struct slice input_idempotency_key(struct input *input);

struct int_rule {
	const char *field;
	const char *alias; /* another name that it may have, or NULL */
	int64_t least;
	int64_t most;
	int64_t fallback;    /* where the field is absent or null */
	bool required;       /* then there is no fallback */
	const char *message; /* "must be an integer from 1" */
};

/* An integer from the body: within the rule, or its fallback where it was wrong. */
int64_t input_int(struct input *input, const struct int_rule *rule);

#endif

/*
 * Reads values from a request and collects all errors, so that the client gets them in one answer.
 * Usage: input_init(), read fields, then `if (input_refuse(&input)) return;`. Called on a loop's
 * thread; never blocks.
 */
#ifndef QUIPU_INBOUND_INPUT_H
#define QUIPU_INBOUND_INPUT_H

#include "base/json.h"
#include "base/text.h"
#include "http/request.h"

#define INPUT_ERRORS_MAX 16
#define IDEMPOTENCY_KEY_BYTES_MAX 255
#define LIST_LIMIT_MAX 1000

struct input {
	struct request *request;
	json_t *body; /* NULL if the request has no body */
	struct field_error errors[INPUT_ERRORS_MAX];
	size_t error_count;
	/* the refusal of the whole request; its http_status is 0 if there is no refusal */
	struct answer refusal;
};

/* Starts reading `request`. Call input_read_body() afterwards to read the body. */
void input_init(struct input *input, struct request *request);

/*
 * Parses the JSON body. An absent or empty body is not an error: all fields then count as absent.
 * Refuses members that the route does not list.
 */
void input_read_body(struct input *input);

/* Refuses members of input->body that `members` does not list. */
void input_check_members(struct input *input, const char *const *members);

/* Returns true if no error has been found so far. */
bool input_is_good(const struct input *input);

/*
 * Ends the reading and frees the parsed body. Strings that were read are copies and stay valid. If
 * there were errors, answers the request with these errors and returns true.
 */
bool input_refuse(struct input *input);

/* Notes that `field` is wrong. `field` and `message` are not copied. Ignores errors beyond
 * INPUT_ERRORS_MAX. */
void input_error(struct input *input, const char *field, const char *message);

/* Notes an error unless `id` has 1 to 128 bytes and no control characters. Does not check for
 * UTF-8, because paths, queries and JSON have already been checked while they were parsed. */
void input_check_id(struct input *input, const char *field, struct slice id);

/* Returns a required id from the body. */
struct slice input_id(struct input *input, const char *field);

/* Returns an optional id from the body, or an empty slice if it is absent. */
struct slice input_optional_id(struct input *input, const char *field);

/*
 * Returns a required id from the body. The id may also be an integer of at least 0 (1001 and "1001"
 * are the same id); sets `*is_number` to whether it is an integer. `alias` is another name of the
 * field.
 */
struct slice input_id_or_number(
	struct input *input, const char *field, const char *alias, bool *is_number);

/* Returns a required list of 1 to `most` (at most 1000) ids from the body. If the field is not such
 * a list, returns NULL and leaves `*count` unchanged. */
struct slice *input_ids(struct input *input, const char *field, size_t most, size_t *count);

/* Returns a required text from the body. If the text is blank or longer than `max` bytes, notes
 * `message` as the error. */
struct slice input_text(struct input *input, const char *field, size_t max, const char *message);

/* Returns the value of a query parameter, or {NULL, 0} if it is absent. If the parameter occurs
 * several times, its last value counts. */
struct slice input_query(struct input *input, const char *name);

/* Returns the query parameter `limit`, from 1 to LIST_LIMIT_MAX, or `fallback` if there is none. */
size_t input_limit(struct input *input, size_t fallback);

/* Refuses the request with IDEMPOTENCY_KEY_REQUIRED if it has no Idempotency-Key header. */
void input_require_key(struct input *input);

/* Returns the Idempotency-Key header, without its quotes if it has any, or {NULL, 0} if there is
 * none. */
struct slice input_idempotency_key(struct input *input);

struct int_rule {
	const char *field;
	const char *alias; /* another name of the field, or NULL */
	int64_t least;
	int64_t most;
	int64_t fallback;    /* the value if the field is absent or null */
	bool required;       /* an absent field is an error */
	const char *message; /* the error, e.g. "must be an integer from 1" */
};

/* Reads an integer from the body. Returns the rule's fallback if the field is absent or wrong. */
int64_t input_int(struct input *input, const struct int_rule *rule);

#endif

/*
 * There are two kinds of errors: a refusal concerns the request as a whole (no JSON, no
 * Idempotency-Key); a field error concerns one value. If there is a refusal, the client gets only
 * the refusal, because a body that cannot be parsed would only add "is required" for each field.
 * Functions return a value even after an error, so that handlers read all fields first and check
 * for errors once.
 */
#include "inbound/input.h"

#include <assert.h>

#include "base/text.h"
#include "http/router.h"

void input_init(struct input *input, struct request *request)
{
	memset(input, 0, sizeof(*input));
	input->request = request;
}

void input_check_members(struct input *input, const char *const *members)
{
	struct unknown_names unknown = {
		.arena = &input->request->arena,
		.status = STATUS_UNKNOWN_FIELD,
		.known = members,
	};
	const char *name;
	json_t *value;

	json_object_foreach(input->body, name, value)
	{
		names_check(&unknown, slice_of(name));
	}
	if (unknown.count > 0)
		input->refusal = names_refuse(&unknown);
}

void input_read_body(struct input *input)
{
	struct request *request = input->request;
	char why[JSON_WHY_SIZE];

	if (request->body.len == 0)
		return;
	if (!request_has_json(request)) {
		input->refusal = answer_problem(&request->arena, STATUS_UNSUPPORTED_MEDIA_TYPE,
			"the body must be application/json");
		return;
	}
	input->body = json_parse_object(request->body, why);
	if (input->body)
		input_check_members(input, request->route->members);
	else
		input->refusal = answer_problem(&request->arena, STATUS_BAD_REQUEST, "%s", why);
}

bool input_is_good(const struct input *input)
{
	return input->refusal.http_status == 0 && input->error_count == 0;
}

bool input_refuse(struct input *input)
{
	struct request *request = input->request;

	json_decref(input->body);
	input->body = NULL;
	if (input->refusal.http_status != 0)
		request_answer(request, input->refusal);
	else if (input->error_count > 0)
		request_answer(request,
			answer_invalid(&request->arena, input->errors, input->error_count));
	else
		return false;
	return true;
}

void input_error(struct input *input, const char *field, const char *message)
{
	if (input->error_count == INPUT_ERRORS_MAX)
		return;
	input->errors[input->error_count].field = field;
	input->errors[input->error_count].message = message;
	input->error_count++;
}

void input_check_id(struct input *input, const char *field, struct slice id)
{
	if (id.len == 0 || id.len > ID_BYTES_MAX)
		input_error(input, field, "must be 1 to 128 bytes of UTF-8");
	else if (text_has_control(id))
		input_error(input, field, "must not contain control characters");
}

/* Notes a field error, unless the request is refused as a whole. */
static void field_error(struct input *input, const char *field, const char *message)
{
	if (input->refusal.http_status == 0)
		input_error(input, field, message);
}

static void refuse_both(struct input *input, const char *field, const char *alias)
{
	struct buffer text = buffer_make(&input->request->arena, 80);

	buffer_format(&text,
		"is another name of \"%s\", which is also present; send only one of them", field);
	buffer_char(&text, '\0');
	field_error(input, alias, text.data);
}

/* Returns the value that the body contains under the name `field` or the name `alias`. Returns NULL
 * if there is no such value, or if the value is null. */
static json_t *field_value(struct input *input, const char *field, const char *alias)
{
	json_t *value = json_object_get(input->body, field);
	json_t *other = alias ? json_object_get(input->body, alias) : NULL;

	if (value && other)
		refuse_both(input, field, alias);
	if (!value)
		value = other;
	return json_is_null(value) ? NULL : value;
}

static struct slice copy_string(struct input *input, const json_t *value)
{
	struct slice text = slice_make(json_string_value(value), json_string_length(value));

	return arena_copy(&input->request->arena, text);
}

struct slice input_id(struct input *input, const char *field)
{
	json_t *value = field_value(input, field, NULL);
	struct slice id = {0};

	if (!json_is_string(value)) {
		field_error(input, field, "is required and must be a string");
		return id;
	}
	id = copy_string(input, value);
	input_check_id(input, field, id);
	return id;
}

struct slice input_optional_id(struct input *input, const char *field)
{
	return field_value(input, field, NULL) ? input_id(input, field) : (struct slice){0};
}

struct slice input_id_or_number(
	struct input *input, const char *field, const char *alias, bool *is_number)
{
	json_t *value = field_value(input, field, alias);
	struct buffer digits = {.arena = &input->request->arena};
	struct slice id = {0};

	*is_number = json_is_integer(value);
	if (json_is_string(value)) {
		id = copy_string(input, value);
		input_check_id(input, field, id);
	} else if (*is_number && json_integer_value(value) >= 0) {
		buffer_int(&digits, json_integer_value(value));
		id = buffer_slice(&digits);
	} else {
		field_error(input, field,
			"is required and must be a string or an integer from 0 to "
			"9223372036854775807");
	}
	return id;
}

struct slice *input_ids(struct input *input, const char *field, size_t most, size_t *count)
{
	json_t *list = field_value(input, field, NULL);
	size_t total = json_array_size(list);
	struct slice *ids;

	if (!json_is_array(list) || total == 0 || total > most) {
		field_error(input, field, "is required and must be a list of 1 to 1000 ids");
		return NULL;
	}
	ids = arena_array(&input->request->arena, struct slice, total);
	for (size_t i = 0; i < total; i++) {
		const json_t *value = json_array_get(list, i);

		if (!json_is_string(value)) {
			field_error(input, field, "must be a list of strings");
			return NULL;
		}
		ids[i] = copy_string(input, value);
		input_check_id(input, field, ids[i]);
	}
	*count = total;
	return ids;
}

struct slice input_text(struct input *input, const char *field, size_t max, const char *message)
{
	json_t *value = field_value(input, field, NULL);
	struct slice text = {0};

	if (json_is_string(value))
		text = copy_string(input, value);
	if (text_is_blank(text) || text.len > max)
		field_error(input, field, message);
	return text;
}

/* Parses a string of RFC 9651, whose only escapes are \" and \\. Returns false if `quoted` is not
 * such a string. */
static bool unquote(struct arena *arena, struct slice quoted, struct slice *out)
{
	char *text = arena_alloc(arena, quoted.len);
	size_t len = 0;

	if (quoted.len < 2 || quoted.data[quoted.len - 1] != '"')
		return false;
	for (size_t i = 1; i < quoted.len - 1; i++) {
		char c = quoted.data[i];

		if (c == '"')
			return false;
		if (c == '\\') {
			c = quoted.data[++i];
			if (i == quoted.len - 1 || (c != '"' && c != '\\'))
				return false;
		}
		text[len++] = c;
	}
	*out = slice_make(text, len);
	return true;
}

struct slice input_idempotency_key(struct input *input)
{
	static const char name[] = "Idempotency-Key";
	struct request *request = input->request;
	struct slice key = request_header(request, name);

	if (!key.data)
		return key;
	if (request_header_count(request, name) > 1)
		input_error(input, name, "must be sent only once");
	if (key.len > 0 && key.data[0] == '"' && !unquote(&request->arena, key, &key))
		input_error(input, name, "is not a valid quoted string");
	else if (key.len == 0 || key.len > IDEMPOTENCY_KEY_BYTES_MAX)
		input_error(input, name, "must be 1 to 255 bytes");
	else if (!text_is_utf8(key) || text_has_control(key))
		input_error(input, name, "must be UTF-8 without control characters");
	return key;
}

int64_t input_int(struct input *input, const struct int_rule *rule)
{
	json_t *value = field_value(input, rule->field, rule->alias);
	int64_t number;

	if (!value && !rule->required)
		return rule->fallback;
	if (!json_is_integer(value)) {
		field_error(input, rule->field, rule->message);
		return rule->fallback;
	}
	number = json_integer_value(value);
	if (number >= rule->least && number <= rule->most)
		return number;
	input_error(input, rule->field, rule->message);
	return rule->fallback;
}

struct slice input_query(struct input *input, const char *name)
{
	return query_value(&input->request->query, name);
}

size_t input_limit(struct input *input, size_t fallback)
{
	struct slice text = input_query(input, "limit");
	int64_t limit;

	if (!text.data)
		return fallback;
	if (text_to_int(text, &limit) && limit >= 1 && limit <= LIST_LIMIT_MAX)
		return (size_t)limit;
	input_error(input, "limit", "must be an integer from 1 to 1000");
	return fallback;
}

void input_require_key(struct input *input)
{
	struct request *request = input->request;

	if (input->refusal.http_status == 0 && !request_header(request, "Idempotency-Key").data)
		input->refusal = answer_problem(&request->arena, STATUS_IDEMPOTENCY_KEY_REQUIRED,
			"this request requires the header Idempotency-Key, so that it can be "
			"retried safely");
}

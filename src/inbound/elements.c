#include "inbound/elements.h"

#include "base/text.h"

struct elements elements_of(struct input *input, const char *field, const char *const *members)
{
	json_t *list = json_object_get(input->body, field);
	struct elements elements = {.input = input, .field = field, .members = members};

	if (input->refusal.http_status != 0)
		return elements;
	if (!json_is_array(list) || json_array_size(list) == 0 ||
		json_array_size(list) > ELEMENTS_MAX) {
		input_error(input, field, "is required and must be a list of 1 to 1000 objects");
		return elements;
	}
	elements.list = list;
	elements.count = json_array_size(list);
	return elements;
}

/* Returns the name of the element that was entered: "changes[3]", or "changes[3].amount" if `field`
 * is not NULL. */
static const char *name_in(const struct elements *elements, const char *field)
{
	struct buffer name = buffer_make(&elements->input->request->arena, 48);

	buffer_format(&name, "%s[%zu]", elements->field, elements->index);
	if (field)
		buffer_format(&name, ".%s", field);
	buffer_char(&name, '\0');
	return name.data;
}

bool elements_enter(struct elements *elements, size_t index)
{
	struct input *input = elements->input;
	json_t *element = json_array_get(elements->list, index);

	elements->index = index;
	if (!json_is_object(element)) {
		input_error(input, name_in(elements, NULL), "must be an object");
		return false;
	}
	elements->body = input->body;
	elements->error_count = input->error_count;
	input->body = element;
	if (input->refusal.http_status == 0)
		input_check_members(input, elements->members);
	return true;
}

void elements_leave(struct elements *elements)
{
	struct input *input = elements->input;

	input->body = elements->body;
	for (size_t i = elements->error_count; i < input->error_count; i++)
		input->errors[i].field = name_in(elements, input->errors[i].field);
}

struct slice elements_key(struct elements *elements, const char *field)
{
	struct input *input = elements->input;
	const json_t *value = json_object_get(input->body, field);
	struct slice key = slice_make(json_string_value(value), json_string_length(value));

	if (!value || json_is_null(value))
		return (struct slice){0};
	if (!json_is_string(value) || key.len == 0 || key.len > IDEMPOTENCY_KEY_BYTES_MAX)
		input_error(input, field, "must be a string of 1 to 255 bytes");
	else if (text_has_control(key))
		input_error(input, field, "must not contain control characters");
	return arena_copy(&input->request->arena, key);
}

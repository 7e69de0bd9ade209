/* The lists of names are short, so they are searched linearly. The known name that is nearest to an
 * unknown name is looked up only when a request is refused. */
#include "http/names.h"

#include "base/nearest.h"
#include "base/text.h"

/* How many bytes of an unknown name the answer shows. Every known name is shorter. */
#define SHOWN_BYTES_MAX 64

const char *const names_any[] = {NULL};

static bool is_known(const char *const *known, struct slice name)
{
	for (size_t i = 0; known && known[i]; i++) {
		if (slice_is(name, known[i]))
			return true;
	}
	return false;
}

static void list_known(struct buffer *text, const char *const *known)
{
	buffer_text(text,
		known ? "is unknown; this route accepts " : "is unknown; this route accepts none");
	for (size_t i = 0; known && known[i]; i++)
		buffer_format(text, "%s\"%s\"", i == 0 ? "" : ", ", known[i]);
}

static const char *explain(const struct unknown_names *unknown, struct slice name)
{
	struct buffer text = buffer_make(unknown->arena, 64);
	const char *nearest = nearest_name(name, unknown->known);

	if (nearest)
		buffer_format(&text, "is unknown; did you mean \"%s\"?", nearest);
	else
		list_known(&text, unknown->known);
	buffer_char(&text, '\0');
	return text.data;
}

static bool is_noted(const struct unknown_names *unknown, struct slice shown)
{
	for (size_t i = 0; i < unknown->count; i++) {
		if (slice_is(shown, unknown->errors[i].field))
			return true;
	}
	return false;
}

void names_check(struct unknown_names *unknown, struct slice name)
{
	struct slice shown = text_cut(name, SHOWN_BYTES_MAX);
	struct field_error *error;

	if (is_known(unknown->known, name) || unknown->count == UNKNOWN_NAMES_MAX ||
		is_noted(unknown, shown))
		return;
	if (unknown->count == 0)
		unknown->errors =
			arena_array(unknown->arena, struct field_error, UNKNOWN_NAMES_MAX);
	error = &unknown->errors[unknown->count++];
	error->field = arena_copy(unknown->arena, shown).data;
	error->message = explain(unknown, name);
}

struct answer names_refuse(const struct unknown_names *unknown)
{
	struct buffer detail = buffer_make(unknown->arena, 128);

	buffer_format(&detail, "the %s \"%s\" %s",
		unknown->status == STATUS_UNKNOWN_FIELD ? "member" : "query parameter",
		unknown->errors[0].field, unknown->errors[0].message);
	return answer_invalid_as(unknown->arena, unknown->status, buffer_slice(&detail),
		unknown->errors, unknown->count);
}

/*
 * Reads messages from JSON: one recursive walk over a message's descriptor serves all message
 * types. The walk stops at the first value that its field does not allow, and the error names the
 * path to that value, e.g. "coins[0].kind".
 */
#include <google/protobuf/timestamp.pb-c.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/json.h"
#include "base/text.h"
#include "protobuf/proto_json.h"

#define NAME_MAX_BYTES 128

/* One step of the path from the whole message to the value that is being read. The steps are local
 * variables of the recursive functions, and each points to the step before it. */
struct place {
	const struct place *parent;
	const char *name; /* NULL if the value is an element of the parent list */
	size_t index;
};

struct reading {
	struct arena *arena;
	struct proto_error *error;
};

static bool read_message(struct reading *reading, const struct place *place,
	const ProtobufCMessageDescriptor *descriptor, const json_t *object,
	ProtobufCMessage **message);

/* ---- errors ------------------------------------------------------------------------------ */

static void write_place(struct buffer *out, const struct place *place)
{
	if (!place)
		return;
	write_place(out, place->parent);
	if (!place->name)
		buffer_format(out, "[%zu]", place->index);
	else
		buffer_format(out, "%s%s", out->len > 0 ? "." : "", place->name);
}

static bool fail(struct reading *reading, const struct place *place, const char *why)
{
	struct buffer where = buffer_make(reading->arena, 64);

	write_place(&where, place);
	buffer_char(&where, '\0');
	*reading->error = (struct proto_error){.where = where.data, .why = why};
	return false;
}

/* ---- numbers ----------------------------------------------------------------------------- */

static bool read_32(struct reading *reading, const struct place *place, const json_t *value,
	bool is_signed, void *member)
{
	int64_t least = is_signed ? INT32_MIN : 0;
	int64_t most = is_signed ? INT32_MAX : UINT32_MAX;
	int64_t number = json_integer_value(value);
	uint32_t bits = (uint32_t)number;

	if (!json_is_integer(value) || number < least || number > most)
		return fail(reading, place,
			is_signed ? "must be a 32-bit integer"
				  : "must be an unsigned 32-bit integer");
	memcpy(member, &bits, sizeof(bits));
	return true;
}

/*
 * Parses an unsigned integer from a string. Other implementations of proto3 send 64-bit integers as
 * strings, and jansson has no integers above INT64_MAX.
 */
static bool parse_unsigned(struct slice text, uint64_t *number)
{
	*number = 0;
	for (size_t i = 0; i < text.len; i++) {
		if (text.data[i] < '0' || text.data[i] > '9' ||
			__builtin_mul_overflow(*number, 10, number) ||
			__builtin_add_overflow(*number, (uint64_t)(text.data[i] - '0'), number))
			return false;
	}
	return text.len > 0;
}

static bool parse_64(const json_t *value, bool is_signed, uint64_t *bits)
{
	struct slice text = slice_make(json_string_value(value), json_string_length(value));
	int64_t number = json_integer_value(value);

	if (json_is_string(value) && !is_signed)
		return parse_unsigned(text, bits);
	if (json_is_string(value) ? !text_to_int(text, &number) : !json_is_integer(value))
		return false;
	*bits = (uint64_t)number;
	return is_signed || number >= 0;
}

static bool read_64(struct reading *reading, const struct place *place, const json_t *value,
	bool is_signed, void *member)
{
	uint64_t bits;

	if (!parse_64(value, is_signed, &bits))
		return fail(reading, place,
			is_signed ? "must be a 64-bit integer"
				  : "must be an unsigned 64-bit integer");
	memcpy(member, &bits, sizeof(bits));
	return true;
}

static bool parse_real(const json_t *value, double *number)
{
	const char *text = json_string_value(value);

	*number = json_number_value(value);
	if (json_is_number(value))
		return fabs(*number) != JSON_HUGE;
	if (!text)
		return false;
	if (strcmp(text, "NaN") == 0)
		*number = NAN;
	else if (strcmp(text, "Infinity") == 0)
		*number = INFINITY;
	else if (strcmp(text, "-Infinity") == 0)
		*number = -INFINITY;
	else
		return false;
	return true;
}

static bool read_real(struct reading *reading, const struct place *place, const json_t *value,
	bool is_float, void *member)
{
	double number;
	float narrow;

	if (!parse_real(value, &number))
		return fail(
			reading, place, "must be a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
	narrow = (float)number;
	if (is_float && isinf(narrow) && !isinf(number))
		return fail(reading, place, "is too large for a 32-bit float");
	if (is_float)
		memcpy(member, &narrow, sizeof(narrow));
	else
		memcpy(member, &number, sizeof(number));
	return true;
}

/* ---- enums, strings, bytes, times -------------------------------------------------------- */

/* Accepts a number that the enum does not list, because enums of proto3 are open. The service
 * decides what to do with such a number. */
static bool read_enum(struct reading *reading, const struct place *place, const json_t *value,
	const ProtobufCEnumDescriptor *descriptor, void *member)
{
	const ProtobufCEnumValue *found;
	int32_t number;

	if (!json_is_string(value))
		return read_32(reading, place, value, true, member);
	found = protobuf_c_enum_descriptor_get_value_by_name(descriptor, json_string_value(value));
	if (!found) {
		fail(reading, place, "must be the name of a value of the enum");
		reading->error->is_argument = true;
		return false;
	}
	number = found->value;
	memcpy(member, &number, sizeof(number));
	return true;
}

/* jansson has already refused NUL and anything that is not UTF-8. */
static bool read_string(
	struct reading *reading, const struct place *place, const json_t *value, char **member)
{
	struct slice text = slice_make(json_string_value(value), json_string_length(value));

	if (!json_is_string(value))
		return fail(reading, place, "must be a string");
	*member = (char *)(uintptr_t)arena_copy(reading->arena, text).data;
	return true;
}

static int base64_digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *found = c ? strchr(digits, c) : NULL;

	if (c == '-' || c == '_') /* the URL-safe alphabet is accepted too */
		return c == '-' ? 62 : 63;
	return found ? (int)(found - digits) : -1;
}

/* Accepts base64 without padding; padding that is present must be correct. */
static bool parse_base64(struct slice text, ProtobufCBinaryData *bytes)
{
	size_t padding = 0;
	uint32_t bits = 0;

	while (padding < 2 && text.len > 0 && text.data[text.len - 1] == '=') {
		text.len--;
		padding++;
	}
	if (text.len % 4 == 1 || (padding > 0 && (text.len + padding) % 4 != 0))
		return false;
	bytes->len = 0;
	for (size_t i = 0; i < text.len; i++) {
		int digit = base64_digit(text.data[i]);

		if (digit < 0)
			return false;
		bits = bits << 6 | (uint32_t)digit;
		if (i % 4 != 0)
			bytes->data[bytes->len++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
	}
	return true;
}

static bool read_bytes(struct reading *reading, const struct place *place, const json_t *value,
	ProtobufCBinaryData *member)
{
	struct slice text = slice_make(json_string_value(value), json_string_length(value));

	if (json_is_string(value)) {
		member->data = arena_alloc(reading->arena, text.len / 4 * 3 + 3);
		if (parse_base64(text, member))
			return true;
	}
	return fail(reading, place, "must be a base64 string");
}

/* Reads `count` digits at `*at` and moves `*at` past them. Returns false if there are fewer
 * digits. */
static bool take_digits(const char **at, int count, int *number)
{
	*number = 0;
	for (int i = 0; i < count; i++) {
		if (**at < '0' || **at > '9')
			return false;
		*number = *number * 10 + *(*at)++ - '0';
	}
	return true;
}

static bool take_char(const char **at, char wanted)
{
	bool is_there = **at == wanted;

	*at += is_there;
	return is_there;
}

static bool take_fraction(const char **at, int32_t *nanos)
{
	int32_t unit = 100000000;

	*nanos = 0;
	if (!take_char(at, '.'))
		return true;
	if (**at < '0' || **at > '9')
		return false;
	for (; **at >= '0' && **at <= '9'; (*at)++) {
		if (unit == 0)
			return false;
		*nanos += (**at - '0') * unit;
		unit /= 10;
	}
	return true;
}

static bool take_offset(const char **at, int64_t *offset_s)
{
	int hours, minutes;
	bool is_behind = **at == '-';

	*offset_s = 0;
	if (take_char(at, 'Z'))
		return true;
	if (!take_char(at, '+') && !take_char(at, '-'))
		return false;
	if (!take_digits(at, 2, &hours) || !take_char(at, ':') || !take_digits(at, 2, &minutes) ||
		hours > 23 || minutes > 59)
		return false;
	*offset_s = (is_behind ? -60 : 60) * (hours * 60 + minutes);
	return true;
}

static bool take_date(const char **at, struct tm *parts)
{
	if (!take_digits(at, 4, &parts->tm_year) || !take_char(at, '-') ||
		!take_digits(at, 2, &parts->tm_mon) || !take_char(at, '-') ||
		!take_digits(at, 2, &parts->tm_mday) || !take_char(at, 'T') ||
		!take_digits(at, 2, &parts->tm_hour) || !take_char(at, ':') ||
		!take_digits(at, 2, &parts->tm_min) || !take_char(at, ':') ||
		!take_digits(at, 2, &parts->tm_sec))
		return false;
	parts->tm_year -= 1900;
	parts->tm_mon -= 1;
	return parts->tm_hour < 24 && parts->tm_min < 60 && parts->tm_sec < 60;
}

/* Parses a time of RFC 3339. Refuses a day that the month does not have. */
static bool parse_time(const char *text, Google__Protobuf__Timestamp *time)
{
	struct tm parts = {0};
	int64_t offset_s;
	int month, day;

	if (!take_date(&text, &parts) || !take_fraction(&text, &time->nanos) ||
		!take_offset(&text, &offset_s) || *text != '\0')
		return false;
	month = parts.tm_mon;
	day = parts.tm_mday;
	time->seconds = timegm(&parts) - offset_s;
	return parts.tm_mon == month && parts.tm_mday == day &&
	       time->seconds >= PROTO_TIME_LEAST_S && time->seconds <= PROTO_TIME_MOST_S;
}

static bool read_time(struct reading *reading, const struct place *place, const json_t *value,
	ProtobufCMessage **member)
{
	Google__Protobuf__Timestamp *time = arena_new(reading->arena, Google__Protobuf__Timestamp);

	google__protobuf__timestamp__init(time);
	if (!json_is_string(value) || !parse_time(json_string_value(value), time))
		return fail(reading, place, "must be a time in RFC 3339");
	*member = &time->base;
	return true;
}

/* ---- fields ------------------------------------------------------------------------------ */

static bool read_bool(struct reading *reading, const struct place *place, const json_t *value,
	protobuf_c_boolean *member)
{
	if (!json_is_boolean(value))
		return fail(reading, place, "must be true or false");
	*member = json_is_true(value);
	return true;
}

static bool read_value(struct reading *reading, const struct place *place,
	const ProtobufCFieldDescriptor *field, const json_t *value, void *member)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return read_32(reading, place, value, true, member);
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return read_32(reading, place, value, false, member);
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return read_64(reading, place, value, true, member);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return read_64(reading, place, value, false, member);
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_DOUBLE:
		return read_real(
			reading, place, value, field->type == PROTOBUF_C_TYPE_FLOAT, member);
	case PROTOBUF_C_TYPE_BOOL:
		return read_bool(reading, place, value, member);
	case PROTOBUF_C_TYPE_ENUM:
		return read_enum(reading, place, value, field->descriptor, member);
	case PROTOBUF_C_TYPE_STRING:
		return read_string(reading, place, value, member);
	case PROTOBUF_C_TYPE_BYTES:
		return read_bytes(reading, place, value, member);
	case PROTOBUF_C_TYPE_MESSAGE:
		if (field->descriptor == &google__protobuf__timestamp__descriptor)
			return read_time(reading, place, value, member);
		return read_message(reading, place, field->descriptor, value, member);
	}
	abort();
}

static bool read_list(struct reading *reading, const struct place *place,
	const ProtobufCFieldDescriptor *field, const json_t *list, ProtobufCMessage *message)
{
	size_t count = json_array_size(list);
	size_t size = proto_size(field->type);
	char *values = arena_calloc(reading->arena, count, size);

	if (!json_is_array(list))
		return fail(reading, place, "must be a list");
	for (size_t i = 0; i < count; i++) {
		struct place element = {.parent = place, .index = i};

		if (!read_value(
			    reading, &element, field, json_array_get(list, i), values + i * size))
			return false;
	}
	*(size_t *)proto_quantifier(message, field) = count;
	*(void **)proto_member(message, field) = values;
	return true;
}

/* If the field is a member of a oneof, records in the message that this member is set. Refuses a
 * second member of the same oneof. */
static bool choose_field(struct reading *reading, const struct place *place,
	const ProtobufCFieldDescriptor *field, ProtobufCMessage *message)
{
	uint32_t *choice = proto_quantifier(message, field);

	if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
		return true;
	if (*choice != 0)
		return fail(reading, place, "cannot be combined with another field of its oneof");
	*choice = field->id;
	return true;
}

/* Writes "pot_id" as "potId". */
static void camel_case(const char *name, char out[NAME_MAX_BYTES])
{
	size_t len = 0;
	bool raise = false;

	for (; *name && len < NAME_MAX_BYTES - 1; name++) {
		bool is_lower = *name >= 'a' && *name <= 'z';

		if (*name != '_')
			out[len++] = raise && is_lower ? (char)(*name - 'a' + 'A') : *name;
		raise = *name == '_';
	}
	out[len] = '\0';
}

/* Looks up the value of the field `name` in `object`, under that name or its lowerCamelCase form.
 * Sets `*value` to NULL if the value is absent or null. Returns false if both names are present. */
static bool find_value(const json_t *object, const char *name, const json_t **value)
{
	char camel[NAME_MAX_BYTES];
	const json_t *other;

	*value = json_object_get(object, name);
	if (strchr(name, '_')) {
		camel_case(name, camel);
		other = json_object_get(object, camel);
		if (other && *value)
			return false;
		*value = other ? other : *value;
	}
	if (json_is_null(*value))
		*value = NULL;
	return true;
}

static bool read_field(struct reading *reading, const struct place *parent,
	const ProtobufCFieldDescriptor *field, const json_t *object, ProtobufCMessage *message)
{
	struct place place = {.parent = parent, .name = field->name};
	const json_t *value;

	if (!find_value(object, field->name, &value))
		return fail(reading, &place, "is present under two names; send only one of them");
	if (!value)
		return true;
	if (field->label == PROTOBUF_C_LABEL_REPEATED)
		return read_list(reading, &place, field, value, message);
	return choose_field(reading, &place, field, message) &&
	       read_value(reading, &place, field, value, proto_member(message, field));
}

static bool read_message(struct reading *reading, const struct place *place,
	const ProtobufCMessageDescriptor *descriptor, const json_t *object,
	ProtobufCMessage **message)
{
	ProtobufCMessage *made = arena_calloc(reading->arena, 1, descriptor->sizeof_message);

	if (!json_is_object(object))
		return fail(reading, place, "must be an object");
	protobuf_c_message_init(descriptor, made);
	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		if (!read_field(reading, place, &descriptor->fields[i], object, made))
			return false;
	}
	*message = made;
	return true;
}

ProtobufCMessage *proto_json_read(const ProtobufCMessageDescriptor *descriptor, struct slice text,
	struct arena *arena, struct proto_error *error)
{
	struct reading reading = {.arena = arena, .error = error};
	char *why = arena_alloc(arena, JSON_WHY_SIZE);
	json_t *object = json_parse_object(text, why);
	ProtobufCMessage *message = NULL;

	if (!object) {
		*error = (struct proto_error){.where = "", .why = why};
		return NULL;
	}
	if (!read_message(&reading, NULL, descriptor, object, &message))
		message = NULL;
	json_decref(object);
	return message;
}

/*
 * Writes messages as JSON: one recursive walk over a message's descriptor serves all message types.
 * The output follows the JSON mapping of proto3, and includes fields that have their default value.
 */
#include <google/protobuf/timestamp.pb-c.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "protobuf/proto_json.h"

static void write_enum(
	struct buffer *out, const ProtobufCEnumDescriptor *descriptor, int32_t number)
{
	const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(descriptor, number);

	if (value)
		buffer_json_string(out, slice_of(value->name));
	else
		buffer_int(out, number);
}

/* Writes enough digits that a reader gets exactly the same number. */
static void write_real(struct buffer *out, double number, bool is_float)
{
	char text[40];

	if (isnan(number)) {
		buffer_text(out, "\"NaN\"");
		return;
	}
	if (isinf(number)) {
		buffer_text(out, number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
		return;
	}
	if (number == 0) {
		buffer_text(
			out, signbit(number) ? "-0.0" : "0"); /* -0 would be read as integer 0 */
		return;
	}
	for (int digits = is_float ? 6 : 15; digits <= (is_float ? 9 : 17); digits++) {
		double again;

		snprintf(text, sizeof(text), "%.*g", digits, number);
		again = strtod(text, NULL);
		if (is_float ? (float)again == (float)number : again == number)
			break;
	}
	buffer_text(out, text);
}

static void write_base64(struct buffer *out, const ProtobufCBinaryData *bytes)
{
	buffer_char(out, '"');
	buffer_base64(out, slice_make((const char *)bytes->data, bytes->len));
	buffer_char(out, '"');
}

static int64_t clamp(int64_t number, int64_t least, int64_t most)
{
	return number < least ? least : number > most ? most : number;
}

/*
 * Writes a time in RFC 3339. The fraction of the second has 0, 3, 6 or 9 digits, as proto3
 * requires. Seconds and nanoseconds outside the ranges that proto3 allows are written as the
 * nearest values in those ranges.
 */
static void write_time(struct buffer *out, const Google__Protobuf__Timestamp *time)
{
	time_t seconds = (time_t)clamp(time->seconds, PROTO_TIME_LEAST_S, PROTO_TIME_MOST_S);
	int nanos = (int)clamp(time->nanos, 0, 999999999);
	struct tm parts;

	gmtime_r(&seconds, &parts);
	buffer_format(out, "\"%04d-%02d-%02dT%02d:%02d:%02d", parts.tm_year + 1900,
		parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
	if (nanos % 1000 != 0)
		buffer_format(out, ".%09d", nanos);
	else if (nanos % 1000000 != 0)
		buffer_format(out, ".%06d", nanos / 1000);
	else if (nanos != 0)
		buffer_format(out, ".%03d", nanos / 1000000);
	buffer_text(out, "Z\"");
}

static void write_value(
	struct buffer *out, const ProtobufCFieldDescriptor *field, const void *value)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		buffer_int(out, *(const int32_t *)value);
		return;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		buffer_int(out, *(const uint32_t *)value);
		return;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		buffer_format(out, "\"%" PRId64 "\"", *(const int64_t *)value);
		return;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		buffer_format(out, "\"%" PRIu64 "\"", *(const uint64_t *)value);
		return;
	case PROTOBUF_C_TYPE_FLOAT:
		write_real(out, (double)*(const float *)value, true);
		return;
	case PROTOBUF_C_TYPE_DOUBLE:
		write_real(out, *(const double *)value, false);
		return;
	case PROTOBUF_C_TYPE_BOOL:
		buffer_text(out, *(const protobuf_c_boolean *)value ? "true" : "false");
		return;
	case PROTOBUF_C_TYPE_ENUM:
		write_enum(out, field->descriptor, *(const int32_t *)value);
		return;
	case PROTOBUF_C_TYPE_STRING:
		buffer_json_string(out, slice_of(*(char *const *)value));
		return;
	case PROTOBUF_C_TYPE_BYTES:
		write_base64(out, value);
		return;
	case PROTOBUF_C_TYPE_MESSAGE:
		if (field->descriptor == &google__protobuf__timestamp__descriptor)
			write_time(out, *(Google__Protobuf__Timestamp *const *)value);
		else
			proto_json_write(out, *(ProtobufCMessage *const *)value);
		return;
	}
	abort();
}

static void write_list(
	struct buffer *out, const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message)
{
	size_t count = *(const size_t *)proto_quantifier(message, field);
	const char *values = *(char *const *)proto_member(message, field);

	buffer_char(out, '[');
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			buffer_char(out, ',');
		write_value(out, field, values + i * proto_size(field->type));
	}
	buffer_char(out, ']');
}

/* Only messages and the members of a oneof can be absent; all other fields have a default. */
static bool is_absent(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message)
{
	if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return *(const uint32_t *)proto_quantifier(message, field) != field->id;
	return field->label != PROTOBUF_C_LABEL_REPEATED &&
	       field->type == PROTOBUF_C_TYPE_MESSAGE &&
	       !*(void *const *)proto_member(message, field);
}

void proto_json_write(struct buffer *out, const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	bool is_first = true;

	buffer_char(out, '{');
	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];

		if (is_absent(field, message))
			continue;
		buffer_text(out, is_first ? "\"" : ",\"");
		buffer_text(out, field->name);
		buffer_text(out, "\":");
		if (field->label == PROTOBUF_C_LABEL_REPEATED)
			write_list(out, field, message);
		else
			write_value(out, field, proto_member(message, field));
		is_first = false;
	}
	buffer_char(out, '}');
}

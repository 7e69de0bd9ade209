/*
 * Implements the binary encoding, and the functions that both encodings share. protobuf-c accepts
 * any bytes as a string and returns a C string that ends at the first NUL. So all strings are
 * checked in the encoded bytes, before protobuf-c unpacks the message. Messages are allocated from
 * an arena and never freed one by one.
 */
#include "protobuf/proto_message.h"

#include <assert.h>
#include <google/protobuf/timestamp.pb-c.h>
#include <stdlib.h>

#include "base/text.h"
#include "protobuf/proto_json.h"

#define NESTING_MAX 16

/* ---- checking descriptors ---------------------------------------------------------------- */

static void check_message(const ProtobufCMessageDescriptor *descriptor, int depth)
{
	assert(depth < NESTING_MAX); /* fails for a message that contains itself */
	if (descriptor == &google__protobuf__timestamp__descriptor)
		return;
	assert(strcmp(descriptor->package_name, "google.protobuf") != 0);
	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];

		/* there are no other labels, because protoc-c refuses proto3's `optional` */
		assert(field->label == PROTOBUF_C_LABEL_NONE ||
			field->label == PROTOBUF_C_LABEL_REPEATED);
		if (field->type == PROTOBUF_C_TYPE_MESSAGE)
			check_message(field->descriptor, depth + 1);
	}
}

void proto_check(const ProtobufCMessageDescriptor *descriptor)
{
	check_message(descriptor, 0);
}

size_t proto_size(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_FLOAT:
		return sizeof(int32_t);
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return sizeof(int64_t);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	}
	abort();
}

/* ---- checking encoded strings ------------------------------------------------------------ */

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static bool take_varint(struct slice *rest, uint64_t *value)
{
	*value = 0;
	for (unsigned shift = 0; shift < 64 && rest->len > 0; shift += 7) {
		unsigned char byte = (unsigned char)rest->data[0];

		*rest = slice_make(rest->data + 1, rest->len - 1);
		*value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

static bool take_bytes(struct slice *rest, uint64_t len, struct slice *bytes)
{
	if (len > rest->len)
		return false;
	*bytes = slice_make(rest->data, (size_t)len);
	*rest = slice_make(rest->data + len, rest->len - (size_t)len);
	return true;
}

static bool take_value(struct slice *rest, uint64_t wire_type, struct slice *bytes)
{
	uint64_t number;

	*bytes = (struct slice){0};
	switch (wire_type) {
	case WIRE_VARINT:
		return take_varint(rest, &number);
	case WIRE_FIXED64:
		return take_bytes(rest, 8, bytes);
	case WIRE_FIXED32:
		return take_bytes(rest, 4, bytes);
	case WIRE_BYTES:
		return take_varint(rest, &number) && take_bytes(rest, number, bytes);
	}
	return false; /* an unknown wire type, or a group, which proto3 does not have */
}

static const ProtobufCFieldDescriptor *find_field(
	const ProtobufCMessageDescriptor *descriptor, uint64_t tag)
{
	return tag >> 3 <= INT32_MAX
		       ? protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(tag >> 3))
		       : NULL;
}

/* Returns false if the bytes in `rest` are not an encoded message. Also returns false, and sets
 * `*bad` to the field, if a string is not UTF-8 or has a NUL. */
static bool strings_are_text(const ProtobufCMessageDescriptor *descriptor, struct slice rest,
	const ProtobufCFieldDescriptor **bad)
{
	while (rest.len > 0) {
		const ProtobufCFieldDescriptor *field;
		struct slice bytes;
		uint64_t tag;

		if (!take_varint(&rest, &tag) || tag >> 3 == 0 ||
			!take_value(&rest, tag & 7, &bytes))
			return false;
		field = (tag & 7) == WIRE_BYTES ? find_field(descriptor, tag) : NULL;
		if (!field)
			continue;
		if (field->type == PROTOBUF_C_TYPE_STRING && !text_is_utf8(bytes)) {
			*bad = field;
			return false;
		}
		if (field->type == PROTOBUF_C_TYPE_MESSAGE &&
			!strings_are_text(field->descriptor, bytes, bad))
			return false;
	}
	return true;
}

/* ---- the binary encoding ----------------------------------------------------------------- */

static void *allocate(void *arena, size_t size)
{
	return arena_alloc(arena, size);
}

static void free_with_arena(void *arena, void *memory)
{
	(void)arena;
	(void)memory;
}

static ProtobufCMessage *read_binary(const ProtobufCMessageDescriptor *descriptor,
	struct slice bytes, struct arena *arena, struct proto_error *error)
{
	ProtobufCAllocator allocator = {allocate, free_with_arena, arena};
	const ProtobufCFieldDescriptor *bad = NULL;
	ProtobufCMessage *message = NULL;

	if (strings_are_text(descriptor, bytes, &bad))
		message = protobuf_c_message_unpack(
			descriptor, &allocator, bytes.len, (const uint8_t *)bytes.data);
	if (!message)
		*error = (struct proto_error){
			.where = bad ? bad->name : "",
			.why = bad ? "must be UTF-8 without NUL"
				   : "the body is not a message of this method",
		};
	return message;
}

static struct slice write_binary(const ProtobufCMessage *message, struct arena *arena)
{
	size_t len = protobuf_c_message_get_packed_size(message);
	uint8_t *bytes = arena_alloc(arena, len);

	return slice_make(bytes, protobuf_c_message_pack(message, bytes));
}

/* ---- both encodings ---------------------------------------------------------------------- */

ProtobufCMessage *proto_read(const ProtobufCMessageDescriptor *descriptor,
	enum proto_encoding encoding, struct slice bytes, struct arena *arena,
	struct proto_error *error)
{
	return encoding == PROTO_JSON ? proto_json_read(descriptor, bytes, arena, error)
				      : read_binary(descriptor, bytes, arena, error);
}

struct slice proto_write(
	const ProtobufCMessage *message, enum proto_encoding encoding, struct arena *arena)
{
	struct buffer json;

	if (encoding == PROTO_BINARY)
		return write_binary(message, arena);
	json = buffer_make(arena, 256);
	proto_json_write(&json, message);
	return buffer_slice(&json);
}

/* The JSON encoding of proto_message.h. Private to src/protobuf. */
#ifndef QUIPU_PROTOBUF_PROTO_JSON_H
#define QUIPU_PROTOBUF_PROTO_JSON_H

#include "base/buffer.h"
#include "protobuf/proto_message.h"

QP_MUST_CHECK ProtobufCMessage *proto_json_read(const ProtobufCMessageDescriptor *descriptor,
	struct slice text, struct arena *arena, struct proto_error *error);

void proto_json_write(struct buffer *out, const ProtobufCMessage *message);

/* The earliest and the latest time that proto3 allows, in seconds since 1970: the first second of
 * the year 1 and the last second of the year 9999. */
#define PROTO_TIME_LEAST_S (-62135596800LL)
#define PROTO_TIME_MOST_S 253402300799LL

/* proto_member() returns the address of a field's value in `message`. proto_quantifier() returns
 * the address of the field's quantifier: the length of a repeated field or, for a member of a
 * oneof, the id of the member that is set. */
static inline void *proto_member(const void *message, const ProtobufCFieldDescriptor *field)
{
	return (char *)(uintptr_t)message + field->offset;
}

static inline void *proto_quantifier(const void *message, const ProtobufCFieldDescriptor *field)
{
	return (char *)(uintptr_t)message + field->quantifier_offset;
}

/* Returns the size of one value of this type in a message or in the array of a repeated field. */
size_t proto_size(ProtobufCType type);

#endif

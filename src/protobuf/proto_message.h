/*
 * Reads and writes protobuf messages in both encodings of Twirp, binary and JSON, by walking
 * protobuf-c's descriptors. Supports all messages of a proto3 file, with two kinds of exceptions.
 * Messages that contain themselves, or that use well-known types other than Timestamp, are detected
 * at start by proto_check(). Messages that use maps or json_name are not supported either, but are
 * not detected, because the descriptors do not show maps and json_name. All functions are
 * thread-safe and have no side effects.
 */
#ifndef QUIPU_PROTOBUF_PROTO_MESSAGE_H
#define QUIPU_PROTOBUF_PROTO_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/slice.h"
#include "base/status.h"

enum proto_encoding { PROTO_JSON, PROTO_BINARY };

/* The reason why a message cannot be read. The texts are static or allocated from the arena passed
 * to proto_read(). */
struct proto_error {
	bool is_argument; /* the message can be decoded, but the field must not have this value */
	/* the field: in JSON its path, e.g. "coins[0].kind", in the binary encoding only its name;
	 * "" for the message as a whole */
	const char *where;
	const char *why; /* e.g. "must be a 32-bit integer" */
};

/* Aborts if a message of this type, or a message in it, contains itself or is a well-known type
 * other than Timestamp. */
void proto_check(const ProtobufCMessageDescriptor *descriptor);

/*
 * Decodes the message in `bytes`. The result is allocated from `arena` and does not point into
 * `bytes`, and its strings are UTF-8 without NUL. Returns NULL and sets `*error` on failure.
 *
 * JSON follows the mapping of proto3 and Quipu's general rules for JSON: fields by their own name
 * or in lowerCamelCase, null means absent, unknown fields are ignored, enums by name or number,
 * 64-bit integers as numbers or strings, times in RFC 3339. Refuses duplicate fields, integers with
 * a fraction or exponent, and 32-bit integers that are strings.
 */
QP_MUST_CHECK ProtobufCMessage *proto_read(const ProtobufCMessageDescriptor *descriptor,
	enum proto_encoding encoding, struct slice bytes, struct arena *arena,
	struct proto_error *error);

/*
 * Returns the encoded `message`, allocated from `arena`. JSON uses the fields' own names, includes
 * fields that have their default value, and writes enums by name and 64-bit integers as strings.
 * Strings in the message must be UTF-8.
 */
struct slice proto_write(
	const ProtobufCMessage *message, enum proto_encoding encoding, struct arena *arena);

#endif

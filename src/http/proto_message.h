/*
 * Messages of protobuf in both encodings of Twirp, binary and JSON, from one description of each:
 * protobuf-c's descriptors. Any message of a proto3 file can be used, except what protobuf-c's
 * descriptors cannot tell apart or say nothing about: maps, json_name, messages that contain
 * themselves, and well-known types other than Timestamp. proto_check() finds those that matter at
 * start. Everything here is pure; any thread.
 */
#ifndef QUIPU_HTTP_PROTO_MESSAGE_H
#define QUIPU_HTTP_PROTO_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/slice.h"
#include "base/status.h"

enum proto_encoding { PROTO_JSON, PROTO_BINARY };

/* Why a message cannot be read. Both texts end with a NUL and live in the arena of the reader. */
struct proto_error {
	bool is_argument;  /* it can be decoded, but a value is none that the field may have */
	const char *where; /* the field, e.g. "coins[0].kind"; "" for the message as a whole */
	const char *why;   /* "must be an integer of 32 bits" */
};

/* Aborts unless messages of this description, and all within them, can be read and written. */
void proto_check(const ProtobufCMessageDescriptor *descriptor);

/*
 * The message in `bytes`, in memory of `arena`; nothing in it refers to `bytes`. Strings are UTF-8
 * without NUL. NULL: `error`.
 *
 * JSON is read as proto3 maps it, with the rules that Quipu has for JSON everywhere: fields by
 * their own name or in lowerCamelCase, null as absent, unknown fields ignored, enums by name or
 * number, 64-bit integers also as strings, times in RFC 3339; no duplicates, and no fraction,
 * exponent or string where an integer of 32 bits is asked.
 */
QP_MUST_CHECK ProtobufCMessage *proto_read(const ProtobufCMessageDescriptor *descriptor,
	enum proto_encoding encoding, struct slice bytes, struct arena *arena,
	struct proto_error *error);

/*
 * The bytes of `message`, in memory of `arena`. JSON: fields by their own names, defaults written
 * out, enums by name, 64-bit integers as strings. Strings must be UTF-8.
 */
struct slice proto_write(
	const ProtobufCMessage *message, enum proto_encoding encoding, struct arena *arena);

#endif

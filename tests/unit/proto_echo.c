/*
 * A helper for tests that compare protobuf/proto_message.h with another implementation. It reads
 * lines "json HEX" or "binary HEX", each a message of every_type.proto, and answers each with "ok
 * JSON_HEX BINARY_HEX" or "no PLACE".
 */
#include <every_type.pb-c.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "protobuf/proto_message.h"

static struct slice from_hex(struct arena *arena, const char *hex)
{
	size_t len = strcspn(hex, "\n") / 2;
	char *bytes = arena_alloc(arena, len);

	for (size_t i = 0; i < len; i++) {
		char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};

		bytes[i] = (char)strtol(pair, NULL, 16);
	}
	return slice_make(bytes, len);
}

static void print_hex(struct slice bytes)
{
	putchar(' ');
	for (size_t i = 0; i < bytes.len; i++)
		printf("%02x", (unsigned char)bytes.data[i]);
}

static void echo(struct arena *arena, const char *line)
{
	enum proto_encoding encoding = line[0] == 'j' ? PROTO_JSON : PROTO_BINARY;
	struct slice bytes = from_hex(arena, strchr(line, ' ') + 1);
	struct proto_error error;
	ProtobufCMessage *message =
		proto_read(&quipu__test__every_type__descriptor, encoding, bytes, arena, &error);

	if (message) {
		fputs("ok", stdout);
		print_hex(proto_write(message, PROTO_JSON, arena));
		print_hex(proto_write(message, PROTO_BINARY, arena));
	} else {
		printf("no %s", error.where);
	}
	putchar('\n');
}

int main(void)
{
	struct arena arena;
	char *line = NULL;
	size_t size = 0;

	arena_init(&arena, 65536);
	while (getline(&line, &size, stdin) > 0) {
		echo(&arena, line);
		arena_reset(&arena);
	}
	free(line);
	arena_release(&arena);
	return 0;
}

#include "inbound/submit.h"

#include "base/hash.h"
#include "http/router.h"

/* Returns the scope of an Idempotency-Key: the method, route template and caller for which the key
 * is valid. In another scope, the same text is a different key. */
static struct slice key_scope(
	struct request *request, const char *method, const char *path, struct slice user_id)
{
	struct buffer scope = buffer_make(&request->arena, 64 + user_id.len);

	buffer_text(&scope, method);
	buffer_char(&scope, ' ');
	buffer_text(&scope, path);
	if (request->caller.kind == CALLER_KEY) {
		buffer_text(&scope, " key=");
		buffer_add(&scope, request->caller.name);
	}
	if (user_id.len > 0) {
		buffer_char(&scope, ' ');
		buffer_add(&scope, user_id);
	}
	return buffer_slice(&scope);
}

void submit_write(struct input *input, struct lane_set *lanes, struct write *write)
{
	submit_write_of(input, lanes, write, (struct slice){0});
}

/* Sets the write's Idempotency-Key to the key of the request, if the request has one. */
static void set_key(struct input *input, struct write *write, struct slice user_id)
{
	struct request *request = input->request;
	struct idempotency_record record = {.key = input_idempotency_key(input)};

	if (!record.key.data || !input_is_good(input))
		return;
	record.scope = key_scope(request, request->route->method, request->route->path, user_id);
	fingerprint_request(input, &record);
	write_set_idempotency(write, &request->arena, &record);
}

/* Submits the write to the lane of the key `near`. If reading the request found errors, refuses the
 * request and submits nothing. */
static void submit(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice near)
{
	struct command *command = &write->command;

	if (input_refuse(input))
		return;
	command->hash = hash_bytes(near);
	request_submit(input->request, lane_set_writer(lanes, command->hash), command);
}

void submit_write_of(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice user_id)
{
	set_key(input, write, user_id);
	submit(input, lanes, write, write->command.key);
}

void submit_write_near(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice near)
{
	set_key(input, write, (struct slice){0});
	submit(input, lanes, write, near);
}

void submit_key_as(
	struct request *request, struct write *write, struct slice key, const struct asked *asked)
{
	struct idempotency_record record = {
		.scope = key_scope(request, asked->method, asked->path, (struct slice){0}),
		.key = key,
	};

	fingerprint_asked(asked, &request->arena, &record);
	write_set_idempotency(write, &request->arena, &record);
}

void submit_read(struct input *input, struct lane_set *lanes, struct read *read)
{
	submit_read_then(input, lanes, read, NULL);
}

void submit_read_then(struct input *input, struct lane_set *lanes, struct read *read,
	void (*answered)(struct request *request, struct command *command))
{
	struct command *command = &read->command;

	if (input_refuse(input))
		return;
	command->hash = command->key.data ? hash_bytes(command->key) : 0;
	request_submit_then(input->request, lane_set_reader(lanes), command, answered);
}

#include "inbound/submit.h"

#include "base/hash.h"
#include "http/router.h"
#include "inbound/fingerprint.h"

/* An Idempotency-Key is valid within one method, route template and caller, so the same key can be
 * used once for each. */
static struct slice key_scope(struct request *request, struct slice user_id)
{
	struct buffer scope = buffer_make(&request->arena, 64 + user_id.len);

	buffer_text(&scope, request->route->method);
	buffer_char(&scope, ' ');
	buffer_text(&scope, request->route->path);
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

void submit_write_of(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice user_id)
{
	struct request *request = input->request;
	struct idempotency_record record = {.key = input_idempotency_key(input)};
	struct command *command = &write->command;

	if (record.key.data && input_is_good(input)) {
		record.scope = key_scope(request, user_id);
		fingerprint_request(input, &record);
		write_set_idempotency(write, &request->arena, &record);
	}
	if (input_refuse(input))
		return;
	command->hash = hash_bytes(command->key);
	request_submit(request, lane_set_writer(lanes, command->hash), command);
}

void submit_read(struct input *input, struct lane_set *lanes, struct read *read)
{
	struct command *command = &read->command;

	if (input_refuse(input))
		return;
	command->hash = command->key.data ? hash_bytes(command->key) : 0;
	request_submit(input->request, lane_set_reader(lanes), command);
}

#include "flow/write.h"

#include <assert.h>

struct write *write_of(struct command *command)
{
	assert(command->type && command->type->is_write);
	return (struct write *)command;
}

void write_answer(struct write *write, struct answer answer)
{
	assert(write->fate == WRITE_OPEN);
	assert(answer.http_status != 0);
	write->command.answer = answer;
	write->fate = WRITE_ANSWERED;
}

void write_begin_effect(struct write *write, struct answer answer)
{
	write_answer(write, answer);
	write->fate = WRITE_EFFECT;
}

void write_resume_effect(struct write *write)
{
	assert(write->resumed && write->fate == WRITE_OPEN);
	write->fate = WRITE_EFFECT;
}

void write_set_idempotency(
	struct write *write, struct arena *arena, const struct idempotency_record *record)
{
	write->idempotency = arena_new(arena, struct idempotency_record);
	*write->idempotency = *record;
}

bool write_answer_is_kept(const struct answer *answer)
{
	int status = answer->http_status;

	return (status >= 200 && status < 300) || status == 404 || status == 409 || status == 412;
}

#include "flow/write.h"

#include <assert.h>

#include "base/digest.h"

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

void write_set_key(struct write *write, struct arena *arena, struct slice scope, struct slice key,
	const struct slice request[3])
{
	write->key = arena_new(arena, struct key_record);
	write->key->scope = scope;
	write->key->key = key;
	digest_parts(request, 3, write->key->fingerprint);
}

bool write_answer_is_kept(const struct answer *answer)
{
	int status = answer->http_status;

	return (status >= 200 && status < 300) || status == 404 || status == 409 || status == 412;
}

/*
 * Runs one script for many entries. One run of a script handles up to REDIS_ENTRIES_MAX entries,
 * because Redis serves no other client while a script runs. redis_run() sends as many runs as the
 * entries need, all in one round trip.
 *
 * Invariant: replies[i] belongs to run i. A run is open until it has a result; until then,
 * replies[i] is NULL or NOSCRIPT.
 */
#include <assert.h>
#include <stdlib.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/buffer.h"
#include "base/clock.h"

static size_t run_count(size_t count)
{
	return (count + REDIS_ENTRIES_MAX - 1) / REDIS_ENTRIES_MAX;
}

static size_t entries_of_run(size_t run, size_t count)
{
	size_t left = count - run * REDIS_ENTRIES_MAX;

	return left < REDIS_ENTRIES_MAX ? left : REDIS_ENTRIES_MAX;
}

/* ---- words ------------------------------------------------------------------------------- */

void redis_add_word(struct redis_words *words, struct slice word)
{
	assert(words->count < REDIS_WORDS_MAX);
	words->words[words->count++] = word;
}

void redis_add_number(struct redis_words *words, int64_t value)
{
	struct buffer digits = buffer_make(words->arena, 24);

	buffer_int(&digits, value);
	redis_add_word(words, buffer_slice(&digits));
}

void redis_add_name(struct redis_words *words, enum redis_name name, struct slice user_id)
{
	char space[REDIS_NAME_SIZE];

	redis_add_word(words, arena_copy(words->arena, redis_name(name, user_id, space)));
}

/* ---- running ----------------------------------------------------------------------------- */

/* How a command identifies its script: by the SHA, which the server may not know, or by the
 * text. */
enum naming { BY_SHA, BY_TEXT };

static void name_script(struct redis_words *words, const struct redis_connection *connection,
	enum redis_script script, enum naming naming)
{
	if (naming == BY_SHA) {
		redis_add_word(words, slice_of("EVALSHA"));
		redis_add_word(words, slice_make(connection->shas[script], REDIS_SHA_LEN));
	} else {
		redis_add_word(words, slice_of("EVAL"));
		redis_add_word(words, slice_of(redis_script_texts[script]));
	}
}

static bool send_run(struct redis_session *session, const struct redis_verb *verb,
	enum naming naming, const char *entries, size_t count)
{
	struct redis_words words = {.arena = &session->words};

	arena_reset(words.arena);
	words.words = arena_alloc(words.arena, REDIS_WORDS_MAX * sizeof(*words.words));
	name_script(&words, &session->connection, verb->script, naming);
	redis_add_number(&words, (int64_t)(count * verb->entry_names));
	for (size_t i = 0; i < count; i++)
		verb->add_names(entries + i * verb->entry_size, &words);
	assert(words.count == 3 + count * verb->entry_names);
	for (size_t i = 0; i < count; i++)
		verb->add_arguments(entries + i * verb->entry_size, &words);
	return redis_send(&session->connection, words.words, words.count);
}

/* Returns true if the run has no result yet: it was not sent, or the server did not know the
 * script. */
static bool is_open(const redisReply *reply)
{
	return !reply || redis_is_error(reply, "NOSCRIPT");
}

/* Sends all open runs in one round trip and receives their replies. */
static bool exchange(struct redis_session *session, const struct redis_verb *verb,
	enum naming naming, const char *entries, size_t count)
{
	const size_t run_size = REDIS_ENTRIES_MAX * verb->entry_size;

	redis_begin(&session->connection);
	for (size_t i = 0; i < session->reply_count; i++) {
		if (is_open(session->replies[i]) &&
			!send_run(session, verb, naming, entries + i * run_size,
				entries_of_run(i, count)))
			return false;
	}
	for (size_t i = 0; i < session->reply_count; i++) {
		if (!is_open(session->replies[i]))
			continue;
		freeReplyObject(session->replies[i]);
		session->replies[i] = redis_receive(&session->connection);
		if (!session->replies[i])
			return false;
	}
	return true;
}

static bool run_open(struct redis_session *session, const struct redis_verb *verb,
	enum naming naming, const char *entries, size_t count)
{
	int64_t started_ns = clock_steady_ns(&clock_system);
	bool ok = exchange(session, verb, naming, entries, count);

	latency_add(session->latency, clock_steady_ns(&clock_system) - started_ns);
	return ok;
}

static bool has_open(const struct redis_session *session)
{
	for (size_t i = 0; i < session->reply_count; i++) {
		if (is_open(session->replies[i]))
			return true;
	}
	return false;
}

static void make_room(struct redis_session *session, size_t reply_count)
{
	assert(session->reply_count == 0);
	if (reply_count > session->replies_size) {
		free(session->replies);
		session->replies = qp_calloc(reply_count, sizeof(redisReply *));
		session->replies_size = reply_count;
	}
	session->reply_count = reply_count;
}

/* NOSCRIPT means that the server did not know the script and ran nothing, so redis_run() sends the
 * open runs again with the script's text. */
bool redis_run(struct redis_session *session, const struct redis_verb *verb, const void *entries,
	size_t count)
{
	make_room(session, run_count(count));
	if (!run_open(session, verb, BY_SHA, entries, count))
		return false;
	return !has_open(session) || run_open(session, verb, BY_TEXT, entries, count);
}

/* ---- reading ----------------------------------------------------------------------------- */

static bool read_run(
	const struct redis_verb *verb, const redisReply *reply, char *entries, size_t count)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (!verb->read_entry(reply->element[i], entries + i * verb->entry_size))
			return false;
	}
	return true;
}

bool redis_read(
	struct redis_session *session, const struct redis_verb *verb, void *entries, size_t count)
{
	const size_t run_size = REDIS_ENTRIES_MAX * verb->entry_size;

	assert(session->reply_count == run_count(count));
	for (size_t i = 0; i < session->reply_count; i++) {
		if (read_run(verb, session->replies[i], (char *)entries + i * run_size,
			    entries_of_run(i, count)))
			continue;
		redis_connection_refuse(&session->connection, verb->what, session->replies[i]);
		return false;
	}
	return true;
}

bool redis_check(struct redis_session *session, const struct redis_verb *verb)
{
	assert(!verb->read_entry);
	for (size_t i = 0; i < session->reply_count; i++) {
		if (session->replies[i]->type == REDIS_REPLY_INTEGER)
			continue;
		redis_connection_refuse(&session->connection, verb->what, session->replies[i]);
		return false;
	}
	return true;
}

/*
 * Calls for one counter, and a crowd: readers that miss, fill and read while a writer commits and
 * refreshes. A value is computed from its version, so each reader can check on the spot that what
 * it reads belongs together and never goes back.
 */
#include "counter_fixture.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/random.h"

struct cached_counter counter_fixture_value(struct slice user_id, int64_t version)
{
	return (struct cached_counter){.user_id = user_id,
		.count = version % 1000,
		.version = version,
		.updated_us = WINDOW_START_US + version};
}

bool counter_fixture_is(const struct cached_counter *counter, int64_t version)
{
	struct cached_counter value = counter_fixture_value(counter->user_id, version);

	return counter->hit && counter->lease == 0 && counter->version == version &&
	       counter->count == value.count && counter->updated_us == value.updated_us;
}

static struct cached_counter get(struct cache_session *session, struct slice user_id, bool is_list)
{
	struct cached_counter counter = {
		.user_id = user_id, .is_list = is_list, .lease = 77, .hit = true};

	assert_int_equal(session->ops->counter_get(session, &counter, 1), STATUS_OK);
	assert_true(counter.is_list == is_list && slice_equal(counter.user_id, user_id));
	assert_true(!counter.hit || counter.lease == 0);
	return counter;
}

struct cached_counter counter_fixture_get(struct cache_session *session, struct slice user_id)
{
	return get(session, user_id, false);
}

struct cached_counter counter_fixture_get_list(struct cache_session *session, struct slice user_id)
{
	return get(session, user_id, true);
}

void counter_fixture_fill(
	struct cache_session *session, const struct cached_counter *missed, int64_t version)
{
	struct cached_counter counter = counter_fixture_value(missed->user_id, version);

	counter.is_list = missed->is_list;
	counter.lease = missed->lease;
	assert_int_equal(session->ops->counter_fill(session, &counter, 1), STATUS_OK);
}

void counter_fixture_refresh(struct cache_session *session, struct slice user_id, int64_t version)
{
	struct cached_counter counter = counter_fixture_value(user_id, version);

	assert_int_equal(session->ops->counter_refresh(session, &counter, 1), STATUS_OK);
}

void counter_fixture_know(struct cache_session *session, struct slice user_id, int64_t version)
{
	struct cached_counter missed = counter_fixture_get(session, user_id);

	assert_true(!missed.hit && missed.lease != 0);
	counter_fixture_fill(session, &missed, version);
}

/* ---- from outside ------------------------------------------------------------------------ */

static redisContext *connect_to(const char *url)
{
	char host[64];
	int port;
	redisContext *context;

	assert_int_equal(sscanf(url, "redis://%63[^:]:%d", host, &port), 2);
	context = redisConnect(host, port);
	assert_true(context && !context->err);
	return context;
}

/* The caller frees the reply. */
static redisReply *tell(struct cache_fixture *fixture, const char *format, ...)
{
	redisContext *context = connect_to(fixture->url);
	redisReply *reply;
	va_list arguments;

	va_start(arguments, format);
	reply = redisvCommand(context, format, arguments);
	va_end(arguments);
	redisFree(context);
	assert_true(reply && reply->type != REDIS_REPLY_ERROR);
	return reply;
}

struct key {
	char text[320];
};

static struct key key_of(enum counter_key name, struct slice user_id)
{
	static const struct {
		const char *prefix, *suffix;
	} names[] = {
		[COUNTER_KEY] = {"counter:", ":UnreadMessages"},
		[LEASE_KEY] = {"counter:", ":UnreadMessages:lease"},
		[LIST_KEY] = {"counters:", ""},
	};
	struct key key;

	snprintf(key.text, sizeof(key.text), "%s%.*s%s", names[name].prefix, (int)user_id.len,
		user_id.data, names[name].suffix);
	return key;
}

void counter_fixture_pass_s(struct cache_fixture *fixture, struct slice user_id, int64_t seconds)
{
	static const char script[] = "for _, key in ipairs(KEYS) do\n"
				     "  local ttl = redis.call('PTTL', key)\n"
				     "  if ttl >= 0 then\n"
				     "    redis.call('PEXPIRE', key, ttl - ARGV[1])\n"
				     "  end\n"
				     "end\n";
	const struct key counter = key_of(COUNTER_KEY, user_id), lease = key_of(LEASE_KEY, user_id),
			 list = key_of(LIST_KEY, user_id);

	cache_fixture_advance_us(seconds * SECOND_US);
	if (strcmp(fixture->url, "memory:") == 0)
		return;
	freeReplyObject(tell(fixture, "EVAL %s 3 %s %s %s %lld", script, counter.text, lease.text,
		list.text, (long long)seconds * 1000));
}

static int64_t integer_of(redisReply *reply)
{
	int64_t integer = reply->integer;

	assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
	freeReplyObject(reply);
	return integer;
}

bool counter_fixture_delete(
	struct cache_fixture *fixture, enum counter_key key, struct slice user_id)
{
	return integer_of(tell(fixture, "DEL %s", key_of(key, user_id).text)) == 1;
}

int64_t counter_fixture_ttl_ms(
	struct cache_fixture *fixture, enum counter_key key, struct slice user_id)
{
	return integer_of(tell(fixture, "PTTL %s", key_of(key, user_id).text));
}

const char *counter_fixture_text(
	struct cache_fixture *fixture, enum counter_key key, struct slice user_id)
{
	redisReply *reply = tell(fixture, "GET %s", key_of(key, user_id).text);
	struct slice text = slice_of("");

	if (reply->type == REDIS_REPLY_STRING)
		text = arena_copy(&fixture->arena, slice_make(reply->str, reply->len));
	freeReplyObject(reply);
	return text.data;
}

static void limit_to(struct cache_fixture *fixture, const struct key *key, int ttl_s)
{
	if (ttl_s > 0)
		freeReplyObject(tell(fixture, "EXPIRE %s %d", key->text, ttl_s));
}

void counter_fixture_plant(struct cache_fixture *fixture, enum counter_key key,
	struct slice user_id, const char *text, int ttl_s)
{
	const struct key place = key_of(key, user_id);

	freeReplyObject(tell(fixture, "SET %s %s", place.text, text));
	limit_to(fixture, &place, ttl_s);
}

void counter_fixture_plant_hash(
	struct cache_fixture *fixture, enum counter_key key, struct slice user_id, int ttl_s)
{
	const struct key place = key_of(key, user_id);

	freeReplyObject(tell(fixture, "DEL %s", place.text));
	freeReplyObject(tell(fixture, "HSET %s count 3 version 7", place.text));
	limit_to(fixture, &place, ttl_s);
}

/* ---- a crowd ----------------------------------------------------------------------------- */

static void *write_always(void *context)
{
	struct counter_crowd *crowd = context;
	struct cache *cache = crowd->fixture->cache;
	struct cache_session *session = cache->ops->open_session(cache);

	while (!crowd->stopping) {
		struct cached_counter counter =
			counter_fixture_value(crowd->user_id, ++crowd->stored);
		enum status status = session->ops->counter_refresh(session, &counter, 1);

		if (status != STATUS_OK && status != STATUS_CACHE_AWAY)
			crowd->wrong++;
		crowd->refreshed = counter.version;
		usleep(status == STATUS_OK ? 500 : 5000);
	}
	session->ops->close(session);
	return NULL;
}

/* Looks; returns whether it may fill. */
static bool look(
	struct counter_crowd *crowd, struct cache_session *session, struct cached_counter *counter)
{
	int64_t least = crowd->refreshed;

	if (session->ops->counter_get(session, counter, 1) != STATUS_OK)
		return false;
	if (!counter->hit)
		return counter->lease != 0;
	crowd->hits++;
	if (counter->version < least || counter->version > crowd->stored ||
		!counter_fixture_is(counter, counter->version))
		crowd->wrong++;
	return false;
}

static void *read_always(void *context)
{
	struct counter_crowd *crowd = context;
	struct cache *cache = crowd->fixture->cache;
	struct cache_session *session = cache->ops->open_session(cache);
	struct dice dice;

	dice_init(&dice);
	while (!crowd->stopping) {
		struct cached_counter counter = {
			.user_id = crowd->user_id, .is_list = dice_below(&dice, 2) == 0};
		struct cached_counter read;

		if (!look(crowd, session, &counter))
			continue;
		read = counter_fixture_value(crowd->user_id, crowd->stored);
		read.lease = counter.lease;
		read.is_list = counter.is_list;
		if (dice_below(&dice, 2) == 0)
			usleep((useconds_t)dice_below(&dice, 2000));
		if (session->ops->counter_fill(session, &read, 1) == STATUS_OK)
			crowd->fills++;
	}
	session->ops->close(session);
	return NULL;
}

void counter_crowd_start(struct counter_crowd *crowd, struct cache_fixture *fixture)
{
	*crowd = (struct counter_crowd){
		.fixture = fixture, .user_id = cache_fixture_user(fixture, "crowd")};
	for (int i = 0; i < 1 + CROWD_READERS; i++) {
		void *(*run)(void *context) = i == 0 ? write_always : read_always;

		assert_int_equal(pthread_create(&crowd->threads[i], NULL, run, crowd), 0);
	}
}

void counter_crowd_stop(struct counter_crowd *crowd)
{
	crowd->stopping = true;
	for (int i = 0; i < 1 + CROWD_READERS; i++)
		pthread_join(crowd->threads[i], NULL);
	assert_true(crowd->wrong == 0);
	assert_true(crowd->hits > 0 && crowd->fills > 0);
}

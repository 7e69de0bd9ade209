#include <assert.h>
#include <stdlib.h>

#include "adapters/redis/redis_internal.h"
#include "base/arena.h"
#include "base/hash.h"

/* Deletions in one round trip: few enough that a healthy server answers well within the timeout. */
#define PIPELINE_MAX 512

/* ---- the set ----------------------------------------------------------------------------- */

/* The user's slot, or the free one where it belongs. */
static struct slice *find_slot(struct redis_drops *drops, struct slice user_id)
{
	size_t i = hash_bytes(user_id) % REDIS_DROPS_SLOTS;

	assert(drops->count <= REDIS_DROPS_MAX);
	while (drops->slots[i].data && !slice_equal(drops->slots[i], user_id))
		i = (i + 1) % REDIS_DROPS_SLOTS;
	return &drops->slots[i];
}

static struct slice copy_of(struct slice text)
{
	char *copy = qp_malloc(text.len + 1);

	if (text.len > 0)
		memcpy(copy, text.data, text.len);
	return slice_make(copy, text.len);
}

void redis_drops_clear(struct redis_drops *drops)
{
	for (size_t i = 0; drops->count > 0 && i < REDIS_DROPS_SLOTS; i++)
		free((char *)drops->slots[i].data);
	*drops = (struct redis_drops){0};
}

void redis_drops_add(struct redis_drops *drops, struct slice user_id)
{
	struct slice *slot;

	if (drops->everybody)
		return;
	slot = find_slot(drops, user_id);
	if (slot->data)
		return;
	if (drops->count == REDIS_DROPS_MAX) {
		redis_drops_clear(drops);
		drops->everybody = true;
		return;
	}
	*slot = copy_of(user_id);
	drops->count++;
}

void redis_drops_add_all(struct redis_drops *drops, const struct redis_drops *more)
{
	if (more->everybody) {
		redis_drops_clear(drops);
		drops->everybody = true;
		return;
	}
	for (size_t i = 0; more->count > 0 && i < REDIS_DROPS_SLOTS; i++) {
		if (more->slots[i].data)
			redis_drops_add(drops, more->slots[i]);
	}
}

bool redis_drops_is_empty(const struct redis_drops *drops)
{
	return !drops->everybody && drops->count == 0;
}

/* ---- making up --------------------------------------------------------------------------- */

static bool send_deletion(struct redis_connection *connection, struct slice key)
{
	const struct slice words[] = {SLICE("DEL"), key};

	return redis_send(connection, words, 2);
}

static bool drop_some(const struct redis_drops *drops, struct redis_connection *connection)
{
	char space[REDIS_USER_ID_MAX + 32];
	size_t sent = 0;

	for (size_t i = 0; i < REDIS_DROPS_SLOTS; i++) {
		if (!drops->slots[i].data)
			continue;
		if (sent == 0)
			redis_begin(connection);
		if (!send_deletion(connection, redis_key(drops->slots[i], space)))
			return false;
		if (++sent == PIPELINE_MAX) {
			if (!redis_receive_ok(connection, "DEL", sent))
				return false;
			sent = 0;
		}
	}
	return redis_receive_ok(connection, "DEL", sent);
}

/* One page of all our keys; the caller frees it. */
static redisReply *scan(struct redis_connection *connection, struct slice cursor)
{
	const struct slice words[] = {SLICE("SCAN"), cursor, SLICE("MATCH"),
		SLICE(REDIS_KEY_PREFIX "*"), SLICE("COUNT"), SLICE("500")};
	redisReply *page;

	redis_begin(connection);
	if (!redis_send(connection, words, 6))
		return NULL;
	page = redis_receive(connection);
	if (!page || (page->type == REDIS_REPLY_ARRAY && page->elements == 2))
		return page;
	redis_connection_refuse(connection, "SCAN", page);
	freeReplyObject(page);
	return NULL;
}

static bool drop_page(struct redis_connection *connection, const redisReply *keys)
{
	redis_begin(connection);
	for (size_t i = 0; i < keys->elements; i++) {
		const redisReply *key = keys->element[i];

		if (!send_deletion(connection, slice_make(key->str, key->len)))
			return false;
	}
	return redis_receive_ok(connection, "DEL", keys->elements);
}

/* SCAN returns every key that is there from its first page to its last; more is no harm. */
static bool drop_everybody(struct redis_connection *connection)
{
	char cursor[32] = "0";
	bool ok;

	do {
		redisReply *page = scan(connection, slice_of(cursor));

		if (!page)
			return false;
		ok = page->element[0]->len < sizeof(cursor) &&
		     drop_page(connection, page->element[1]);
		if (ok)
			memcpy(cursor, page->element[0]->str, page->element[0]->len + 1);
		freeReplyObject(page);
	} while (ok && strcmp(cursor, "0") != 0);
	return ok;
}

bool redis_drops_make_up(const struct redis_drops *drops, struct redis_connection *connection)
{
	return drops->everybody ? drop_everybody(connection) : drop_some(drops, connection);
}

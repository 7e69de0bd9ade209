/*
 * Records deletions that have failed or were requested while Redis was away, and repeats them.
 *
 * It is enough to record a set of user ids per kind of entry: how often and in which order
 * deletions failed does not matter, because deleting an entry once more is harmless. A set with
 * more than REDIS_DROPS_MAX ids turns into "all users", so that even a long outage uses a bounded
 * amount of memory. For "all users", SCAN finds all names with our prefixes. Invariant: a set that
 * stands for all users has no ids.
 */
#include <assert.h>
#include <stdlib.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/arena.h"
#include "base/hash.h"

/* The maximum number of deletions per round trip. A healthy server completes them well within the
 * timeout. */
#define PIPELINE_MAX 512
#define CURSOR_SIZE 32

#define KIND_NAMES_MAX 3

static const struct {
	size_t count;
	enum redis_name names[KIND_NAMES_MAX];
} names_of[REDIS_KINDS] = {
	[REDIS_LIMITS] = {1, {REDIS_NAME_LIMIT}},
	[REDIS_COUNTERS] = {3, {REDIS_NAME_COUNTER, REDIS_NAME_LEASE, REDIS_NAME_LIST}},
};

/* ---- a set of users ---------------------------------------------------------------------- */

/* Returns the slot that holds the user's id, or the free slot where the id belongs. */
static struct slice *find_slot(struct redis_users *users, struct slice user_id)
{
	size_t i = hash_bytes(user_id) % REDIS_DROPS_SLOTS;

	assert(users->count <= REDIS_DROPS_MAX);
	while (users->slots[i].data && !slice_equal(users->slots[i], user_id))
		i = (i + 1) % REDIS_DROPS_SLOTS;
	return &users->slots[i];
}

static struct slice copy_of(struct slice text)
{
	char *copy = qp_malloc(text.len + 1);

	if (text.len > 0)
		memcpy(copy, text.data, text.len);
	return slice_make(copy, text.len);
}

static void forget(struct redis_users *users)
{
	for (size_t i = 0; users->count > 0 && i < REDIS_DROPS_SLOTS; i++)
		free((char *)users->slots[i].data);
	*users = (struct redis_users){0};
}

static void hold_everybody(struct redis_users *users)
{
	forget(users);
	users->everybody = true;
}

static void add(struct redis_users *users, struct slice user_id)
{
	struct slice *slot;

	if (users->everybody)
		return;
	slot = find_slot(users, user_id);
	if (slot->data)
		return;
	if (users->count == REDIS_DROPS_MAX) {
		hold_everybody(users);
		return;
	}
	*slot = copy_of(user_id);
	users->count++;
}

static void add_all(struct redis_users *users, const struct redis_users *more)
{
	if (more->everybody) {
		hold_everybody(users);
		return;
	}
	for (size_t i = 0; more->count > 0 && i < REDIS_DROPS_SLOTS; i++) {
		if (more->slots[i].data)
			add(users, more->slots[i]);
	}
}

/* ---- the sets ---------------------------------------------------------------------------- */

void redis_drops_add(struct redis_drops *drops, enum redis_kind kind, struct slice user_id)
{
	add(&drops->users[kind], user_id);
}

void redis_drops_add_all(struct redis_drops *drops, const struct redis_drops *more)
{
	for (int kind = 0; kind < REDIS_KINDS; kind++)
		add_all(&drops->users[kind], &more->users[kind]);
}

void redis_drops_add_everybody(struct redis_drops *drops)
{
	for (int kind = 0; kind < REDIS_KINDS; kind++)
		hold_everybody(&drops->users[kind]);
}

bool redis_drops_is_empty(const struct redis_drops *drops)
{
	for (int kind = 0; kind < REDIS_KINDS; kind++) {
		if (drops->users[kind].everybody || drops->users[kind].count > 0)
			return false;
	}
	return true;
}

void redis_drops_clear(struct redis_drops *drops)
{
	for (int kind = 0; kind < REDIS_KINDS; kind++)
		forget(&drops->users[kind]);
}

/* ---- repeating the deletions ------------------------------------------------------------- */

static bool send_deletion(
	struct redis_connection *connection, enum redis_kind kind, struct slice user_id)
{
	char spaces[KIND_NAMES_MAX][REDIS_NAME_SIZE];
	struct slice words[1 + KIND_NAMES_MAX] = {SLICE("DEL")};

	for (size_t i = 0; i < names_of[kind].count; i++)
		words[1 + i] = redis_name(names_of[kind].names[i], user_id, spaces[i]);
	return redis_send(connection, words, 1 + names_of[kind].count);
}

static bool drop_some(
	const struct redis_users *users, enum redis_kind kind, struct redis_connection *connection)
{
	size_t sent = 0;

	for (size_t i = 0; users->count > 0 && i < REDIS_DROPS_SLOTS; i++) {
		if (!users->slots[i].data)
			continue;
		if (sent == 0)
			redis_begin(connection);
		if (!send_deletion(connection, kind, users->slots[i]))
			return false;
		if (++sent == PIPELINE_MAX) {
			if (!redis_receive_ok(connection, "DEL", sent))
				return false;
			sent = 0;
		}
	}
	return redis_receive_ok(connection, "DEL", sent);
}

static bool is_scan_page(const redisReply *page)
{
	return page->type == REDIS_REPLY_ARRAY && page->elements == 2 &&
	       page->element[0]->type == REDIS_REPLY_STRING &&
	       page->element[0]->len < CURSOR_SIZE && page->element[1]->type == REDIS_REPLY_ARRAY;
}

/* Returns one page of matching names, or NULL on failure. The caller frees the reply. */
static redisReply *scan(
	struct redis_connection *connection, struct slice pattern, struct slice cursor)
{
	const struct slice words[] = {
		SLICE("SCAN"), cursor, SLICE("MATCH"), pattern, SLICE("COUNT"), SLICE("500")};
	redisReply *page;

	redis_begin(connection);
	if (!redis_send(connection, words, 6))
		return NULL;
	page = redis_receive(connection);
	if (!page || is_scan_page(page))
		return page;
	redis_connection_refuse(connection, "SCAN", page);
	freeReplyObject(page);
	return NULL;
}

static bool drop_page(struct redis_connection *connection, const redisReply *names)
{
	redis_begin(connection);
	for (size_t i = 0; i < names->elements; i++) {
		const redisReply *name = names->element[i];
		const struct slice words[] = {SLICE("DEL"), slice_make(name->str, name->len)};

		if (!redis_send(connection, words, 2))
			return false;
	}
	return redis_receive_ok(connection, "DEL", names->elements);
}

/* Deletes all entries whose names match. SCAN is guaranteed to return every name that exists
 * throughout the scan. */
static bool drop_matching(struct redis_connection *connection, struct slice pattern)
{
	char cursor[CURSOR_SIZE] = "0";
	bool ok;

	do {
		redisReply *page = scan(connection, pattern, slice_of(cursor));

		if (!page)
			return false;
		ok = drop_page(connection, page->element[1]);
		if (ok)
			memcpy(cursor, page->element[0]->str, page->element[0]->len + 1);
		freeReplyObject(page);
	} while (ok && strcmp(cursor, "0") != 0);
	return ok;
}

static bool drop_everybody(struct redis_connection *connection, enum redis_kind kind)
{
	const struct slice any = SLICE("*");
	char space[REDIS_NAME_SIZE];

	for (size_t i = 0; i < names_of[kind].count; i++) {
		if (!drop_matching(connection, redis_name(names_of[kind].names[i], any, space)))
			return false;
	}
	return true;
}

bool redis_drops_make_up(const struct redis_drops *drops, struct redis_connection *connection)
{
	for (int i = 0; i < REDIS_KINDS; i++) {
		const struct redis_users *users = &drops->users[i];
		enum redis_kind kind = (enum redis_kind)i;

		if (users->everybody ? !drop_everybody(connection, kind)
				     : !drop_some(users, kind, connection))
			return false;
	}
	return true;
}

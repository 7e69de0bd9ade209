/*
 * What the files of this adapter share. The types of hiredis go no further than this folder.
 *
 *   url          where Redis is and who we are
 *   connection   a socket with our scripts loaded; sends and receives within a deadline
 *   drops        the users whose deletion is owed, for limits and for counters
 *   cache        whether Redis is in use: the breaker, and the thread that looks for it
 *   waker        carries announcements between processes
 *   session      a connection that is there while Redis is, and the table of the port's calls
 *   runs         one script for many entries, in one round trip
 *   limits       the calls of the port for limits
 *   counters     the calls of the port for counters
 *
 * One lock, the cache's; nobody talks to Redis with it held.
 */
#ifndef QUIPU_ADAPTERS_CACHE_REDIS_REDIS_INTERNAL_H
#define QUIPU_ADAPTERS_CACHE_REDIS_REDIS_INTERNAL_H

#include <hiredis/hiredis.h>
#include <netdb.h>
#include <stdint.h>

#include "adapters/cache/redis/redis_cache.h"
#include "adapters/shared/listeners.h"
#include "base/arena.h"
#include "base/random.h"
#include "base/slice.h"
#include "base/status.h"
#include "base/steady.h"

/* How long connecting and each round trip may take, unless a test says otherwise. */
#define REDIS_TIMEOUT_MS 200
#define REDIS_PROBE_MS 200

/* What one command may consist of; for scripts: EVALSHA, its name, the number of keys, and each
 * entry's keys and arguments. */
#define REDIS_ENTRIES_MAX 128
#define REDIS_ENTRY_WORDS_MAX 6
#define REDIS_WORDS_MAX (3 + REDIS_ENTRIES_MAX * REDIS_ENTRY_WORDS_MAX)

/* ---- keys -------------------------------------------------------------------------------- */

#define REDIS_USER_ID_MAX 256
#define REDIS_NAME_SIZE (REDIS_USER_ID_MAX + 32)

enum redis_name { REDIS_NAME_LIMIT, REDIS_NAME_COUNTER, REDIS_NAME_LEASE, REDIS_NAME_LIST };

/* A user's key of that name; `space` holds it. No two of these are ever the same. */
struct slice redis_name(enum redis_name name, struct slice user_id, char space[REDIS_NAME_SIZE]);

/* ---- url --------------------------------------------------------------------------------- */

struct redis_url {
	char host[256];
	int port;
	char user[128];     /* "": the default user */
	char password[256]; /* "": no AUTH */
	char db[8];         /* "": the first */
};

/* false: `why` is a sentence that holds nothing of the URL. */
QP_MUST_CHECK bool redis_url_parse(
	struct redis_url *url, struct slice text, char *why, size_t size);

/* ---- connections ------------------------------------------------------------------------- */

enum redis_script {
	REDIS_SCRIPT_TAKE,
	REDIS_SCRIPT_FILL,
	REDIS_SCRIPT_COUNTER_LOOK,
	REDIS_SCRIPT_COUNTER_GET,
	REDIS_SCRIPT_COUNTER_FILL,
	REDIS_SCRIPT_COUNTER_REFRESH,
	REDIS_SCRIPTS
};

/* In redis_scripts.c, where they are explained. */
extern const char *const redis_script_texts[REDIS_SCRIPTS];

#define REDIS_SHA_LEN 40
#define REDIS_WHY_SIZE 160

struct redis_connection {
	redisContext *context; /* NULL: not connected */
	int timeout_ms;        /* to connect, and of each round trip */
	int64_t deadline_ns;   /* of the call that runs */
	char shas[REDIS_SCRIPTS][REDIS_SHA_LEN];
	char why[REDIS_WHY_SIZE]; /* what failed last; holds no secret */
};

/*
 * Connects to `host`, which need not be the URL's own form of it, introduces us, and loads the
 * scripts; fails where Redis would refuse to write. The connection must not be open, and has its
 * timeout.
 */
QP_MUST_CHECK bool redis_connection_open(
	struct redis_connection *connection, const char *host, const struct redis_url *url);

/* Also when it is not open. Keeps `why`. */
void redis_connection_close(struct redis_connection *connection);

/* Whether it is open and quiet, as it must be between calls. Never blocks. */
bool redis_connection_is_quiet(const struct redis_connection *connection);

/* The other end as a numeric address. */
QP_MUST_CHECK bool redis_connection_address(
	const struct redis_connection *connection, char address[NI_MAXHOST]);

/*
 * One round trip: redis_begin(), redis_send() for each command, redis_receive() for each reply. A
 * failure of any has closed the connection and set `why`. Replies may be errors of the server; the
 * caller frees each with freeReplyObject().
 */
void redis_begin(struct redis_connection *connection);
QP_MUST_CHECK bool redis_send(
	struct redis_connection *connection, const struct slice *words, size_t count);
QP_MUST_CHECK redisReply *redis_receive(struct redis_connection *connection);

/* Closes because of a reply that ends the call: `what` was answered in a way it must not be. */
void redis_connection_refuse(
	struct redis_connection *connection, const char *what, const redisReply *reply);

/* Receives `count` replies and wants them without errors. */
QP_MUST_CHECK bool redis_receive_ok(
	struct redis_connection *connection, const char *what, size_t count);

/* Whether `reply` is the server's error `code`, e.g. "NOSCRIPT". */
bool redis_is_error(const redisReply *reply, const char *code);

/* ---- drops ------------------------------------------------------------------------------- */

#define REDIS_DROPS_MAX 8192
#define REDIS_DROPS_SLOTS (2 * REDIS_DROPS_MAX)

/* What of a user is deleted together: the hash of the limit; the counter, its lease, the list. */
enum redis_kind { REDIS_LIMITS, REDIS_COUNTERS, REDIS_KINDS };

/* A set of user ids. Past REDIS_DROPS_MAX it holds everybody. All zero: empty. */
struct redis_users {
	bool everybody;
	size_t count;
	struct slice slots[REDIS_DROPS_SLOTS]; /* open addressing; owned */
};

/* No lock. All zero: empty. */
struct redis_drops {
	struct redis_users users[REDIS_KINDS];
};

void redis_drops_add(struct redis_drops *drops, enum redis_kind kind, struct slice user_id);
void redis_drops_add_all(struct redis_drops *drops, const struct redis_drops *more);
bool redis_drops_is_empty(const struct redis_drops *drops);

/* Empties and frees what it holds. */
void redis_drops_clear(struct redis_drops *drops);

/* Deletes the keys, over as many round trips as it takes. false: `why` says why not. */
QP_MUST_CHECK bool redis_drops_make_up(
	const struct redis_drops *drops, struct redis_connection *connection);

/* ---- cache ------------------------------------------------------------------------------- */

struct redis_cache;

struct redis_cache *redis_cache_of(struct cache *cache);

/*
 * The phases follow each other for ever, and are counted: a moment is the number of phases that
 * were begun so far, so that moment % REDIS_PHASES is the present one. While Redis returns, what is
 * owed is being deleted, and new deletions go to it directly: else they could owe without end.
 */
enum redis_phase { REDIS_AWAY, REDIS_RETURNS, REDIS_IN_USE, REDIS_PHASES };

uint64_t redis_cache_moment(const struct redis_cache *cache);

static inline enum redis_phase redis_phase_at(uint64_t moment)
{
	return (enum redis_phase)(moment % REDIS_PHASES);
}

/* Whether Redis has not been away between the two. Connections do not outlive that. */
static inline bool redis_is_same_round(uint64_t moment, uint64_t other)
{
	return moment / REDIS_PHASES == other / REDIS_PHASES;
}

/* Something failed on a connection of that moment: Redis is away, unless that is old news. */
void redis_cache_failed(struct redis_cache *cache, uint64_t moment, const char *why);

/* What must be deleted before the cache is used again. */
struct redis_debt {
	enum redis_kind kind;
	const struct slice *user_ids;
	size_t count;
};

/* Notes it. false: Redis is not away, nothing is noted. */
QP_MUST_CHECK bool redis_cache_owe_if_away(
	struct redis_cache *cache, const struct redis_debt *debt);

/* Notes it after a deletion has failed: Redis is away now, whatever it was. */
void redis_cache_owe(struct redis_cache *cache, const struct redis_debt *debt, const char *why);

/* Before start: for tests, whose machine may be busier than a Redis in use ever is. */
void redis_cache_set_timeout_ms(struct cache *cache, int timeout_ms);

/* Opens `connection` where the background thread has found Redis: no name is looked up. */
QP_MUST_CHECK bool redis_cache_connect(
	struct redis_cache *cache, struct redis_connection *connection);

/* ---- waker ------------------------------------------------------------------------------- */

struct redis_waker;

/* Starts a thread. `listeners` are called on it when other processes announce something, and when
 * they may have. `db` is the database's number as text, "": the first. */
struct redis_waker *redis_waker_start(
	struct redis_cache *cache, const char *db, struct listeners *listeners);

/* Any thread, never blocks. */
void redis_waker_announce(struct redis_waker *waker, const char *announcement);

/* When it returns, no listener is called any more. */
void redis_waker_stop(struct redis_waker *waker);

/* ---- sessions ---------------------------------------------------------------------------- */

struct redis_session {
	struct cache_session base;
	struct redis_cache *cache;
	struct redis_connection connection;
	uint64_t moment; /* at which the connection was made, or tried */

	struct arena arena; /* of the call that runs */
	struct arena words; /* of the command that is being written */
	redisReply **replies;
	size_t replies_size;
	size_t reply_count; /* of the call that runs */

	struct dice dice; /* for leases */
};

struct cache_session *redis_session_open(struct cache *cache);

struct redis_session *redis_session_of(struct cache_session *session);

/* Has a connection of the present round; false: Redis is not in that phase, or away by now. */
QP_MUST_CHECK bool redis_session_make_ready(struct redis_session *session, enum redis_phase least);

/* Forgets the replies, so that the call may ask once more. */
void redis_session_drop_replies(struct redis_session *session);

/* Forgets the replies of a call and what its arena holds. */
void redis_session_end_call(struct redis_session *session);

/* A call has failed, and its connection is closed: Redis is away. Returns CACHE_AWAY. */
enum status redis_session_fail(struct redis_session *session);

/* For the count of open ones. */
void redis_cache_session_opened(struct redis_cache *cache);
void redis_cache_session_closed(struct redis_cache *cache);

/* ---- runs -------------------------------------------------------------------------------- */

/* A command in the making. */
struct redis_words {
	struct arena *arena;
	struct slice *words;
	size_t count;
};

void redis_add_word(struct redis_words *words, struct slice word);
void redis_add_number(struct redis_words *words, int64_t value);
void redis_add_key(struct redis_words *words, enum redis_name name, struct slice user_id);

/* How a script is asked about the entries of a call, and how it answers. */
struct redis_verb {
	enum redis_script script;
	const char *what; /* "filling a limit": for the log when it fails */
	size_t entry_size;
	size_t entry_keys; /* how many add_keys() adds */
	void (*add_keys)(const void *entry, struct redis_words *words);
	void (*add_arguments)(const void *entry, struct redis_words *words);

	/* false: no answer of that script. NULL: a run answers with a number. */
	bool (*read_entry)(const redisReply *reply, void *entry);
};

/*
 * Runs the script for all entries, and keeps the replies until the end of the call. false: the
 * connection has failed.
 */
QP_MUST_CHECK bool redis_ask(struct redis_session *session, const struct redis_verb *verb,
	const void *entries, size_t count);

/*
 * Reads the replies into the entries, which are half written where one cannot be read. false: one
 * could not, and the connection is closed.
 */
QP_MUST_CHECK bool redis_read(
	struct redis_session *session, const struct redis_verb *verb, void *entries, size_t count);

/* The same for a verb without read_entry. */
QP_MUST_CHECK bool redis_check(struct redis_session *session, const struct redis_verb *verb);

/* ---- the calls of the port --------------------------------------------------------------- */

enum status redis_limit_take(
	struct cache_session *session, struct cached_limit *limits, size_t count);
enum status redis_limit_fill(
	struct cache_session *session, const struct cached_limit *limits, size_t count);
enum status redis_limit_drop(
	struct cache_session *session, const struct slice *user_ids, size_t count);

enum status redis_counter_get(
	struct cache_session *session, struct cached_counter *counters, size_t count);
enum status redis_counter_fill(
	struct cache_session *session, const struct cached_counter *counters, size_t count);
enum status redis_counter_refresh(
	struct cache_session *session, const struct cached_counter *counters, size_t count);

#endif

/*
 * Declarations shared by the files of this adapter. The types of hiredis do not leave this folder.
 * Redis's keys are called names here, because in this program a key is what a command changes.
 *
 *   url          parses Redis's address, and the user and password to log in with
 *   names        the names under which Redis keeps limits, counters and leases
 *   connection   a socket with our scripts loaded; sends and receives within a deadline
 *   sentinel     queries Redis Sentinel for the address of the master
 *   drops        the users whose limits or counters still have to be deleted
 *   cache        the circuit breaker and its background thread: decides whether Redis is in use
 *   waker        carries announcements between processes
 *   session      a connection that is open while Redis is in use, and the table of port calls
 *   scripts      the Lua scripts
 *   runs         one script for many entries, in one round trip
 *   limits       the port's calls for limits
 *   counters     the port's calls for counters
 *
 * These files have one lock, in struct redis_cache. No thread holds the lock during a round trip to
 * Redis.
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

/* The time limit for connecting and for each round trip, unless a test changes it. */
#define REDIS_TIMEOUT_MS 200

/* How long the background thread pauses between two probes. */
#define REDIS_PROBE_MS 200

/*
 * One run of a script handles at most REDIS_ENTRIES_MAX entries. REDIS_WORDS_MAX is the maximum
 * number of words of a command to Redis. The longest command calls a script: EVALSHA, the script's
 * SHA, the number of names, and then the names and arguments of each entry.
 */
#define REDIS_ENTRIES_MAX 128
#define REDIS_ENTRY_WORDS_MAX 6
#define REDIS_WORDS_MAX (3 + REDIS_ENTRIES_MAX * REDIS_ENTRY_WORDS_MAX)

/* ---- names ------------------------------------------------------------------------------- */

#define REDIS_USER_ID_MAX 256
#define REDIS_NAME_SIZE (REDIS_USER_ID_MAX + 32)

enum redis_name { REDIS_NAME_LIMIT, REDIS_NAME_COUNTER, REDIS_NAME_LEASE, REDIS_NAME_LIST };

/*
 * Returns the name under which Redis keeps an entry of the user; the name is stored in `space`.
 * `name` selects the entry: the limit, the counter, the lease, or the list of the user's counters.
 * Different entries, and entries of different users, never have the same name.
 */
struct slice redis_name(enum redis_name name, struct slice user_id, char space[REDIS_NAME_SIZE]);

/* ---- url --------------------------------------------------------------------------------- */

#define REDIS_HOST_SIZE 256
#define REDIS_PLACES_MAX 8

struct redis_place {
	char host[REDIS_HOST_SIZE];
	int port;
};

struct redis_url {
	/* the addresses of Redis, or of the Sentinels */
	struct redis_place places[REDIS_PLACES_MAX];
	size_t place_count;
	char master[128];   /* the Sentinels' name for the master; "" without Sentinels */
	char user[128];     /* "" for the default user */
	char password[256]; /* "" for no AUTH */
	char db[8];         /* "" for the first database */
};

/* Returns false if the URL is not valid; `why` is then a sentence that contains no part of the
 * URL. */
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

/* The Lua text of each script; see redis_scripts.c. */
extern const char *const redis_script_texts[REDIS_SCRIPTS];

#define REDIS_SHA_LEN 40
#define REDIS_WHY_SIZE 160

struct redis_connection {
	redisContext *context; /* NULL while not connected */
	int timeout_ms;        /* the time limit for connecting, and for each round trip */
	int64_t deadline_ns;   /* when the current round trip must end */
	char shas[REDIS_SCRIPTS][REDIS_SHA_LEN];
	char why[REDIS_WHY_SIZE]; /* the last failure; contains no secret */
};

/*
 * Connects, and sends nothing yet. The connection must not be open, and its timeout_ms must be set.
 * On failure, the connection is closed and its `why` is set.
 */
QP_MUST_CHECK bool redis_connection_dial(
	struct redis_connection *connection, const struct redis_place *place);

/* Connects, authenticates, selects the database, loads the scripts, and checks that Redis accepts
 * writes. */
QP_MUST_CHECK bool redis_connection_open(struct redis_connection *connection,
	const struct redis_place *place, const struct redis_url *url);

/* Closes the connection if it is open. Keeps `why`. */
void redis_connection_close(struct redis_connection *connection);

/* Returns whether the connection is open and has nothing to read, which is the normal state between
 * calls. Never blocks. */
bool redis_connection_is_quiet(const struct redis_connection *connection);

/* Writes the server's numeric address to `address`. On failure, returns false and leaves the
 * connection open. */
QP_MUST_CHECK bool redis_connection_address(
	const struct redis_connection *connection, char address[REDIS_HOST_SIZE]);

/*
 * A round trip is redis_begin(), redis_send() for each command, and redis_receive() for each reply.
 * A failure closes the connection and sets `why`. An error that the server reports is not a failure
 * but a reply. The caller frees each reply with freeReplyObject().
 */
void redis_begin(struct redis_connection *connection);
QP_MUST_CHECK bool redis_send(
	struct redis_connection *connection, const struct slice *words, size_t count);
QP_MUST_CHECK redisReply *redis_receive(struct redis_connection *connection);

/* Sends AUTH with the URL's user and password. */
QP_MUST_CHECK bool redis_send_login(
	struct redis_connection *connection, const struct redis_url *url);

/* Closes the connection after an unexpected reply, and sets `why`. `what` describes the request. */
void redis_connection_refuse(
	struct redis_connection *connection, const char *what, const redisReply *reply);

/* Receives `count` replies. If a reply is an error, closes the connection and returns false. `what`
 * describes the requests. */
QP_MUST_CHECK bool redis_receive_ok(
	struct redis_connection *connection, const char *what, size_t count);

/* Returns whether `reply` is the server's error `code`, e.g. "NOSCRIPT". */
bool redis_is_error(const redisReply *reply, const char *code);

/* ---- Sentinels ---------------------------------------------------------------------------- */

/*
 * Queries the Sentinels of the URL, one after another, until one returns the master's address. If
 * `connection` is still open to a Sentinel, queries that Sentinel first. If no Sentinel returns an
 * address, sets the connection's `why` and returns false.
 */
QP_MUST_CHECK bool redis_sentinel_find(struct redis_connection *connection,
	const struct redis_url *url, struct redis_place *master);

/* ---- drops ------------------------------------------------------------------------------- */

#define REDIS_DROPS_MAX 8192
#define REDIS_DROPS_SLOTS (2 * REDIS_DROPS_MAX)

/*
 * The entries of a user that are deleted together. REDIS_LIMITS: the hash of the limit.
 * REDIS_COUNTERS: the counter, its lease, and the list of the user's counters.
 */
enum redis_kind { REDIS_LIMITS, REDIS_COUNTERS, REDIS_KINDS };

/* A set of user ids. When more than REDIS_DROPS_MAX ids are added, the set drops its ids and stands
 * for all users. An empty set is all zero. */
struct redis_users {
	bool everybody;
	size_t count;
	struct slice slots[REDIS_DROPS_SLOTS]; /* open addressing; the set owns the ids */
};

/* The users whose entries still have to be deleted, by kind; all zero if there are none. The struct
 * has no lock of its own. */
struct redis_drops {
	struct redis_users users[REDIS_KINDS];
};

void redis_drops_add(struct redis_drops *drops, enum redis_kind kind, struct slice user_id);
void redis_drops_add_all(struct redis_drops *drops, const struct redis_drops *more);
void redis_drops_add_everybody(struct redis_drops *drops);
bool redis_drops_is_empty(const struct redis_drops *drops);

/* Empties the sets and frees their ids. */
void redis_drops_clear(struct redis_drops *drops);

/*
 * Deletes the entries of all users in `drops`, in as many round trips as needed. On failure the
 * connection is closed and its `why` is set.
 */
QP_MUST_CHECK bool redis_drops_make_up(
	const struct redis_drops *drops, struct redis_connection *connection);

/* ---- cache ------------------------------------------------------------------------------- */

struct redis_cache;

struct redis_cache *redis_cache_of(struct cache *cache);

/*
 * The phases follow each other in this order, in a cycle. A moment is the number of phase changes
 * so far, skipped phases included, so moment % REDIS_PHASES is the current phase. In the phase
 * REDIS_RETURNS, the background thread carries out the deletions that Redis has missed (the debt).
 * New deletions go to Redis directly: if they were added to the debt, the debt might grow faster
 * than the thread can work it off.
 */
enum redis_phase { REDIS_AWAY, REDIS_RETURNS, REDIS_IN_USE, REDIS_PHASES };

uint64_t redis_cache_moment(const struct redis_cache *cache);

static inline enum redis_phase redis_phase_at(uint64_t moment)
{
	return (enum redis_phase)(moment % REDIS_PHASES);
}

/* Returns true if both moments belong to the same cycle of phases, i.e. Redis did not go away
 * between the two moments. A connection is used in one cycle only. */
static inline bool redis_is_same_round(uint64_t moment, uint64_t other)
{
	return moment / REDIS_PHASES == other / REDIS_PHASES;
}

/*
 * Reports a failure on a connection that was opened at `moment`. If Redis has already gone away
 * since `moment`, the failure is old and is ignored. Otherwise Redis is away from now on.
 */
void redis_cache_failed(struct redis_cache *cache, uint64_t moment, const char *why);

/* Users whose entries must be deleted before the cache is used again. */
struct redis_debt {
	enum redis_kind kind;
	const struct slice *user_ids;
	size_t count;
};

/* If Redis is away, records the debt and returns true. Otherwise returns false. */
QP_MUST_CHECK bool redis_cache_owe_if_away(
	struct redis_cache *cache, const struct redis_debt *debt);

/* Records the debt after a deletion has failed, and enters the phase REDIS_AWAY, whatever the phase
 * was before. */
void redis_cache_owe(struct redis_cache *cache, const struct redis_debt *debt, const char *why);

/* Changes the timeout, for tests on a busy machine. Call this before start(). */
void redis_cache_set_timeout_ms(struct cache *cache, int timeout_ms);

/* Opens a connection to the address at which the background thread last reached Redis, so that no
 * caller has to wait for a name look-up. */
QP_MUST_CHECK bool redis_cache_connect(
	struct redis_cache *cache, struct redis_connection *connection);

/* ---- waker ------------------------------------------------------------------------------- */

struct redis_waker;

/*
 * Starts a thread that calls `listeners` when other processes announce something, or may have
 * announced something while there was no connection. `db` is the database's number as text, "" for
 * the first database.
 */
struct redis_waker *redis_waker_start(
	struct redis_cache *cache, const char *db, struct listeners *listeners);

/* Queues an announcement, which the waker's thread publishes. Any thread; never blocks. */
void redis_waker_announce(struct redis_waker *waker, const char *announcement);

/* Ends the waker's thread. The waker calls no listener after redis_waker_stop() has returned. */
void redis_waker_stop(struct redis_waker *waker);

/* ---- sessions ---------------------------------------------------------------------------- */

struct redis_session {
	struct cache_session base;
	struct redis_cache *cache;
	struct latency *latency; /* points into the cache; all sessions share it */
	struct redis_connection connection;
	uint64_t moment; /* redis_cache_moment() when the session last tried to connect */

	struct arena arena; /* memory for the current call */
	struct arena words; /* memory for the current command */
	redisReply **replies;
	size_t replies_size;
	size_t reply_count; /* how many replies the current call has */

	struct dice dice; /* generates lease numbers */
};

struct cache_session *redis_session_open(struct cache *cache);

struct redis_session *redis_session_of(struct cache_session *session);

/*
 * Makes sure that the session has a connection that was opened since Redis was last away, and opens
 * one if needed. Returns false if the current phase comes before `least`, or if the connection
 * cannot be opened.
 */
QP_MUST_CHECK bool redis_session_ready(struct redis_session *session, enum redis_phase least);

/*
 * Like redis_session_ready(), for a call whose deletions must not get lost: the call may also run
 * in the phase REDIS_RETURNS. If Redis is away, records the debt and returns false.
 */
QP_MUST_CHECK bool redis_session_ready_or_owe(
	struct redis_session *session, const struct redis_debt *debt);

/* Drops the replies, so that the call can run another script. */
void redis_session_drop_replies(struct redis_session *session);

/* Drops the replies of a call and the contents of its arena. */
void redis_session_end_call(struct redis_session *session);

/*
 * Ends a call. If `ok` is true, returns OK. Otherwise reports the failure to the cache and returns
 * CACHE_AWAY; the connection must already be closed.
 */
enum status redis_session_finish(struct redis_session *session, bool ok);

/* Keep the cache's number of open sessions up to date. */
void redis_cache_session_opened(struct redis_cache *cache);
void redis_cache_session_closed(struct redis_cache *cache);

/* ---- runs -------------------------------------------------------------------------------- */

/* A command to Redis that is being put together, word by word. */
struct redis_words {
	struct arena *arena;
	struct slice *words;
	size_t count;
};

void redis_add_word(struct redis_words *words, struct slice word);
void redis_add_number(struct redis_words *words, int64_t value);
void redis_add_name(struct redis_words *words, enum redis_name name, struct slice user_id);

/* How a script is called for the entries of a port call, and how its reply is read. */
struct redis_verb {
	enum redis_script script;
	const char *what; /* for the log line about a failure, e.g. "filling a limit" */
	size_t entry_size;
	size_t entry_names; /* how many names add_names() adds */
	void (*add_names)(const void *entry, struct redis_words *words);
	void (*add_arguments)(const void *entry, struct redis_words *words);

	/*
	 * Reads one entry's part of the reply. Returns false if the reply has a form that the
	 * script never sends. This member is NULL if the script replies with a single number.
	 */
	bool (*read_entry)(const redisReply *reply, void *entry);
};

/*
 * Runs the script for all entries, and keeps the replies until the end of the call. If the
 * connection fails, closes it and returns false.
 */
QP_MUST_CHECK bool redis_run(struct redis_session *session, const struct redis_verb *verb,
	const void *entries, size_t count);

/*
 * Reads the replies into the entries. If a reply cannot be read, closes the connection and returns
 * false; some entries may have been written already.
 */
QP_MUST_CHECK bool redis_read(
	struct redis_session *session, const struct redis_verb *verb, void *entries, size_t count);

/* Checks that every reply is a number, for a verb whose read_entry is NULL. If a reply is not a
 * number, closes the connection and returns false. */
QP_MUST_CHECK bool redis_check(struct redis_session *session, const struct redis_verb *verb);

/* ---- the port's calls -------------------------------------------------------------------- */

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

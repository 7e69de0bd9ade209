/*
 * A relational store provides what every service needs: sessions, transactions, idempotency keys.
 * Implemented by adapters/store/sqlite and adapters/store/postgres, and wrapped by
 * adapters/store/tracing, which logs each call, and by tests/unit/faulty_store.h, whose calls fail
 * when a test wants it.
 *
 * A session is one connection. One thread uses it at a time, and all of its functions block. A
 * transaction runs from begin() to commit() or rollback() on a session of the kind SESSION_WRITE. A
 * function that fails has already rolled the transaction back; calling rollback() afterwards does
 * nothing. The session can begin a new transaction at once and reconnects by itself. close() rolls
 * an open transaction back.
 *
 * Besides OK, a function of a session may return:
 *   RERUN              a deadlock, a lost race, or a connection that broke before COMMIT; run the
 *                      transaction again
 *   LOCK_BUSY          another session holds a lock for longer than a batch may wait
 *   POISON             the engine refuses this data; run the rest of the transaction without it
 *   STORE_UNAVAILABLE  the engine cannot be reached or cannot write; nothing was applied
 *   OUTCOME_UNKNOWN    the transaction may or may not have been applied; returned only by commit()
 *                      and by functions that commit by themselves
 */
#ifndef QUIPU_PORTS_STORE_H
#define QUIPU_PORTS_STORE_H

#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"
#include "ports/answer.h"

/* What a transaction does about rows that other sessions have locked. */
enum transaction_mode {
	TRANSACTION_WAIT, /* waits for a short time, then fails with LOCK_BUSY */
	TRANSACTION_SKIP, /* reports locked rows as busy instead of waiting for them */

	/*
	 * Like WAIT, but the transaction consists of a single verb (one call of a repository
	 * function). The verb may commit by itself and then returns what commit() would return; the
	 * caller still calls commit(). Use this mode only if the store's `single_saves_a_trip` is
	 * set.
	 */
	TRANSACTION_SINGLE,
};

enum session_kind { SESSION_WRITE, SESSION_READ };

/*
 * The fingerprint of a request (inbound/fingerprint.h) begins with one byte for its version, so
 * that later versions of the program know how it was computed. Fingerprints of the first version
 * have no such byte: they are the SHA-256 of the method, path and body as the client sent them.
 * They are still recognised, because a key that was stored before an upgrade stays valid until it
 * expires.
 */
#define FINGERPRINT_VERSION 2
#define FINGERPRINT_SIZE 33
#define FINGERPRINT_SIZE_1 32

/* An Idempotency-Key, and the record stored under it. */
struct idempotency_record {
	struct slice scope; /* the method, the route's template, and the caller if known */
	struct slice key;
	/* identifies what the request asks for; see inbound/fingerprint.h */
	unsigned char fingerprint[FINGERPRINT_SIZE];
	/* the raw method, path and body, for fingerprints of the first version */
	struct slice typed[3];

	bool found; /* set by idempotency_find: the key is stored and has not expired */
	/* set by idempotency_find: the key was stored for this request; see
	 * idempotency_is_same() */
	bool same_request;
	/*
	 * A pending record stands for an effect outside the store that has begun and whose outcome
	 * is not recorded yet. Only the record's owner can record the outcome. The owner's lease
	 * lasts IDEMPOTENCY_LEASE_US; after that, any process may claim the record.
	 */
	struct slice owner; /* empty if the record is not pending */
	bool lease_is_over; /* set by idempotency_find */
	/* a text that the service stores with a pending record, and that it may need if a later
	 * attempt begins the effect again */
	struct slice note;
	bool was_ours; /* set by idempotency_claim, idempotency_finish, idempotency_forget and
			  idempotency_release: the call has changed the record */

	struct answer answer;
};

/* Returns whether `stored`, a fingerprint of any version, belongs to the record's request. Called
 * by stores. */
bool idempotency_is_same(const struct idempotency_record *record, struct slice stored);

/*
 * Selects a page of a table: at most `limit` rows whose key is greater than `after`. The rows are
 * sorted by key and all come from one snapshot. The caller provides an array for `limit` rows.
 */
struct row_page {
	struct slice user_id; /* whose rows to list; empty for lists of all users' rows */
	/* the values of the key's text columns in the row after which the page begins; the second
	 * is empty if the key has only one text column */
	struct slice after[2];
	/* List only rows whose first key column is at least `from` and, unless `until` is empty,
	 * below `until`. Only lists of counts use these two members. */
	struct slice from;
	struct slice until;
	int64_t after_number; /* the value of the key's number column, if the key has one */
	int64_t after_minor;  /* the value of the key's second number column, if it has two */
	size_t limit;
	size_t count;   /* output: how many rows the page has */
	int64_t now_us; /* output: the store's time, taken after the snapshot */
};

/* A row of the table of Idempotency-Keys, expired or not. */
struct kept_answer {
	struct slice scope;
	struct slice key;
	size_t fingerprint_size;
	int32_t http_status;
	struct slice body;
	struct slice owner; /* empty if the record is not pending */
	int64_t lease_us;   /* when the owner's lease ends (column lease_until) */
	struct slice note;
};

/* An action of an operator: a row of operator_actions. */
struct operator_record {
	int64_t id; /* unique in its database */
	int64_t at_us;
	struct slice who;    /* the id of the API key; empty if no key was checked */
	struct slice action; /* "replay", "discard", "resend", "erase" */
	struct slice target; /* e.g. "outbox_events/7d44…" */
	struct slice detail;
};

/* The lease of a pending record is shorter than the usual deadline of a request, so that a request
 * that repeats the key can wait until the lease ends. */
#define IDEMPOTENCY_LEASE_US (4 * 1000000LL)

struct latency;
struct session;

struct session_ops {
	QP_MUST_CHECK enum status (*begin)(struct session *session, enum transaction_mode mode);
	QP_MUST_CHECK enum status (*commit)(struct session *session);
	void (*rollback)(struct session *session);

	/*
	 * Looks up records, which are sorted by scope and key. Sets `found` in each record; if the
	 * key is found, also sets `same_request`, `owner`, `lease_is_over`, `note` and `answer`,
	 * whose texts are allocated from `arena`. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*idempotency_find)(struct session *session, struct arena *arena,
		struct idempotency_record *records, size_t count);

	/*
	 * Stores records and their answers, which expire after `ttl_us`. Records are sorted by
	 * scope and key. Returns RERUN if another transaction has stored one of the keys first.
	 * Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*idempotency_put)(struct session *session,
		const struct idempotency_record *records, size_t count, int64_t ttl_us);

	/*
	 * Takes over those stored records that are pending and whose lease is over. Each of them
	 * gets the `owner`, note and answer of the given record, and a new lease. Records are
	 * sorted by scope and key. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*idempotency_claim)(
		struct session *session, struct idempotency_record *records, size_t count);

	/* Makes the stored answers of records final, because their effects succeeded. Changes a
	 * stored record only if the `owner` in the given record still owns it. Records are sorted
	 * by scope and key. Must be called in a transaction. */
	QP_MUST_CHECK enum status (*idempotency_finish)(
		struct session *session, struct idempotency_record *records, size_t count);

	/* Deletes records, because their effects never happened. Deletes a stored record only if
	 * the `owner` in the given record still owns it. Records are sorted by scope and key. Must
	 * be called in a transaction. */
	QP_MUST_CHECK enum status (*idempotency_forget)(
		struct session *session, struct idempotency_record *records, size_t count);

	/* Ends the leases of records now, because their owner gives the records up. Changes a
	 * stored record only if the `owner` in the given record still owns it. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*idempotency_release)(
		struct session *session, struct idempotency_record *records, size_t count);

	/* Reads a page of the stored keys whose scope begins with `prefix`, sorted by scope and
	 * key. `prefix` is ASCII. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*idempotency_list)(struct session *session, struct arena *arena,
		struct slice prefix, struct row_page *page, struct kept_answer *keys);

	/* Deletes up to `limit` expired keys in a transaction of its own, and sets `*deleted` to
	 * their number. */
	QP_MUST_CHECK enum status (*idempotency_sweep)(
		struct session *session, size_t limit, size_t *deleted);

	/* Reads a page of operators' actions, newest first. The page begins after the action with
	 * the time page->after_number and the id page->after_minor. Must be called outside a
	 * transaction. */
	QP_MUST_CHECK enum status (*list_actions)(struct session *session, struct arena *arena,
		struct row_page *page, struct operator_record *records);

	void (*close)(struct session *session);
};

/* Each adapter embeds this struct as the first member of its own session. */
struct session {
	const struct session_ops *ops;
	struct store *store;
};

/*
 * The repositories of a store, by service. If an engine has no tables for a service, the repository
 * of that service is NULL. A repository works only with sessions of its own store.
 */
struct store_repositories {
	const struct count_repository *counts;
	const struct limit_repository *limits;
	const struct sent_repository *sent;
	const struct outbound_repository *outbound;
	const struct entitlement_repository *entitlements;
	const struct outbox_repository *entitlement_outbox;
	const struct notification_repository *notifications;
	const struct pot_repository *pots;
	const struct message_repository *messages;
	const struct outbox_repository *dialog_outbox;
	const struct counter_repository *counters;
};

struct store_ops {
	/*
	 * Connects and applies migrations, in the background if the engine is a server. Returns
	 * false if the store can never work; `why` is then a sentence for the user.
	 */
	QP_MUST_CHECK bool (*start)(struct store *store, char *why, size_t size);

	/* Never fails: a session connects when it is first used. */
	struct session *(*open_session)(struct store *store, enum session_kind kind);

	/* Returns whether requests can be served now. Thread-safe. */
	bool (*is_up)(struct store *store);

	/*
	 * Sends `announcement`, which means that something new was committed, to its listeners on
	 * this store, in all processes. Calls the listeners of this process at once, on this
	 * thread. The listeners of other processes are called a little later. Each announcement is
	 * sent to other processes at most once per 20 ms, and it can get lost on the way there.
	 * `announcement` must be static. Thread-safe; never blocks.
	 */
	void (*announce)(struct store *store, const char *announcement);

	/* From now on `heard` is called after each announcement of this name, on any thread.
	 * `heard` must neither block nor call listen(). `announcement` must be static. */
	void (*listen)(struct store *store, const char *announcement, void (*heard)(void *context),
		void *context);

	/* Once unlisten() returns, no listener is called with this context any more. */
	void (*unlisten)(struct store *store, void *context);

	/*
	 * Spreads the tables over the nodes of a cluster, for `quipu migrate`. Prints the
	 * statements to `out`, and executes them unless `dry_run` is true; prints nothing if
	 * everything is spread already. The store must be up. Blocks, possibly for a long time. On
	 * failure returns false with a reason in `why`. `distribute` is NULL if the engine does not
	 * support clusters.
	 */
	QP_MUST_CHECK bool (*distribute)(
		struct store *store, bool dry_run, FILE *out, char *why, size_t size);

	/* Returns how many times the engine failed with this status. A lost race does not count.
	 * Thread-safe. */
	int64_t (*error_count)(struct store *store, enum status kind);

	/* Call it after all sessions are closed. */
	void (*free)(struct store *store);
};

/* Each adapter embeds this struct as the first member of its own store. */
struct store {
	const struct store_ops *ops;
	const struct store_repositories *repositories;
	const char *name;   /* the name in /readyz and the metrics, e.g. "counts-store" */
	const char *engine; /* "sqlite", "postgres" */
	/* the latency of round trips or, if the engine is a library, of commits; owned by the
	 * adapter */
	struct latency *latency;
	size_t lanes_default;
	/* with TRANSACTION_SINGLE, the verb and its commit share one round trip */
	bool single_saves_a_trip;
};

/* Calls distribute(). Returns false with a reason in `why` if that fails or if the engine does not
 * support clusters. */
QP_MUST_CHECK bool store_distribute(
	struct store *store, bool dry_run, FILE *out, char *why, size_t size);

static inline void session_close(struct session *session)
{
	session->ops->close(session);
}

#endif

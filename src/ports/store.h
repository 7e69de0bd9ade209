/*
 * What every service needs from a relational store: sessions, transactions, idempotency keys.
 * Implemented by adapters/store/sqlite and adapters/store/postgres, and by a fake in the tests.
 *
 * A session is one connection, used by one thread at a time; all of its functions block. A
 * transaction is begin … commit or rollback on one session of the kind SESSION_WRITE; any function
 * that fails has already rolled the transaction back (rollback() is then harmless), and the session
 * can begin again at once (it reconnects by itself). close() undoes a transaction that is open.
 *
 * What a function of a session may return, besides OK:
 *   RERUN              rolled back by chance, or the connection was lost before COMMIT: run again
 *   LOCK_BUSY          somebody outside holds a lock for longer than a batch may wait
 *   POISON             the engine refuses this data; run what shares the transaction without it
 *   STORE_UNAVAILABLE  the engine cannot be reached or cannot write; nothing was applied
 *   OUTCOME_UNKNOWN    commit(), and what commits by itself: it may have been applied, or not
 */
#ifndef QUIPU_PORTS_STORE_H
#define QUIPU_PORTS_STORE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"
#include "ports/answer.h"

/* How a transaction behaves; said when it begins. */
enum transaction_mode {
	TRANSACTION_WAIT, /* waits a short while for rows that others hold, then LOCK_BUSY */
	TRANSACTION_SKIP, /* reports such rows as busy and waits for nothing */

	/*
	 * Waits, and consists of one verb, which may commit by itself and then returns what
	 * commit() would return. commit() follows all the same. Use it only where the store's
	 * `single_saves_a_trip` says that it is worth it.
	 */
	TRANSACTION_SINGLE,
};

enum session_kind { SESSION_WRITE, SESSION_READ };

#define FINGERPRINT_SIZE 32

/* An Idempotency-Key and what is remembered under it. */
struct idempotency_record {
	struct slice scope; /* route template, and the caller where there is one */
	struct slice key;
	unsigned char fingerprint[FINGERPRINT_SIZE]; /* of method, path and body */

	bool found;        /* set by idempotency_find: it is there and has not expired */
	bool same_request; /* set by idempotency_find: its fingerprint is this one */
	/*
	 * A pending record stands for something outside the store that has begun and whose end is
	 * not recorded. It has an owner, whose lease lasts IDEMPOTENCY_LEASE_US; only the owner can
	 * end it, and after the lease anybody may claim it.
	 */
	struct slice owner; /* empty: not pending */
	bool lease_is_over; /* set by idempotency_find */
	struct slice note;  /* what the service needs to go on */
	bool was_ours;      /* set by idempotency_claim, idempotency_finish, idempotency_forget and
			       idempotency_release */

	struct answer answer;
};

/*
 * A page of a table in key order: the rows whose key is greater than `after`, at most `limit` of
 * them, all from one snapshot. The caller provides an array of `limit` rows beside it.
 */
struct row_page {
	struct slice user_id; /* whose rows to list; empty for lists of all users' rows */
	struct slice
		after[2];     /* the key's text columns; the second is empty if there is only one */
	int64_t after_number; /* the key's number column, if it has one */
	size_t limit;
	size_t count;   /* out */
	int64_t now_us; /* out: the store's time, taken after the snapshot */
};

/* What is kept under an Idempotency-Key, expired or not, as it is in the table. */
struct kept_answer {
	struct slice scope;
	struct slice key;
	size_t fingerprint_size;
	int32_t http_status;
	struct slice body;
	struct slice owner; /* empty: not pending */
	int64_t lease_us;   /* lease_until */
	struct slice note;
};

/* Shorter than the usual deadline of a request, so that a retry can wait it out. */
#define IDEMPOTENCY_LEASE_US (4 * 1000000LL)

struct session;

struct session_ops {
	QP_MUST_CHECK enum status (*begin)(struct session *session, enum transaction_mode mode);
	QP_MUST_CHECK enum status (*commit)(struct session *session);
	void (*rollback)(struct session *session);

	/*
	 * In a transaction. Fills `found` of records sorted by scope and key, and, where it is
	 * found, `same_request`, `owner`, `lease_is_over`, `note` and `answer`, in memory of
	 * `arena`.
	 */
	QP_MUST_CHECK enum status (*idempotency_find)(struct session *session, struct arena *arena,
		struct idempotency_record *records, size_t count);

	/*
	 * In a transaction. Remembers sorted records with their answers for `ttl_us`. RERUN:
	 * another transaction was first with one of them.
	 */
	QP_MUST_CHECK enum status (*idempotency_put)(struct session *session,
		const struct idempotency_record *records, size_t count, int64_t ttl_us);

	/* In a transaction. `owner` becomes the owner of sorted pending records whose lease is
	 * over, with a lease of its own. */
	QP_MUST_CHECK enum status (*idempotency_claim)(
		struct session *session, struct idempotency_record *records, size_t count);

	/* In a transaction. Sorted records of this owner have ended well: their answers are final.
	 */
	QP_MUST_CHECK enum status (*idempotency_finish)(
		struct session *session, struct idempotency_record *records, size_t count);

	/* In a transaction. Sorted records of this owner have come to nothing: they are forgotten.
	 */
	QP_MUST_CHECK enum status (*idempotency_forget)(
		struct session *session, struct idempotency_record *records, size_t count);

	/* In a transaction. The owner does not go on with these: their lease is over now. */
	QP_MUST_CHECK enum status (*idempotency_release)(
		struct session *session, struct idempotency_record *records, size_t count);

	/* Outside a transaction: a page of what is kept under scopes that begin with `prefix`,
	 * which is ASCII, sorted by scope and key. */
	QP_MUST_CHECK enum status (*idempotency_list)(struct session *session, struct arena *arena,
		struct slice prefix, struct row_page *page, struct kept_answer *keys);

	/*
	 * A transaction of its own: deletes up to `limit` expired keys and tells how many.
	 */
	QP_MUST_CHECK enum status (*idempotency_sweep)(
		struct session *session, size_t limit, size_t *deleted);

	void (*close)(struct session *session);
};

/* The head of each adapter's own session. */
struct session {
	const struct session_ops *ops;
	struct store *store;
};

/*
 * What a store keeps, by service. An engine that has no tables for a service leaves it NULL. A
 * repository works with the sessions of its own store.
 */
struct store_repositories {
	const struct count_repository *counts;
	const struct limit_repository *limits;
	const struct sent_repository *sent;
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
	 * Connects and applies migrations, in the background where the engine can be away. false:
	 * it can never work; `why` is a sentence for the user.
	 */
	QP_MUST_CHECK bool (*start)(struct store *store, char *why, size_t size);

	/* Never fails: it connects when it is first used. */
	struct session *(*open_session)(struct store *store, enum session_kind kind);

	/* Whether requests can be served now. Any thread. */
	bool (*is_up)(struct store *store);

	/*
	 * Tells everybody who listens to `announcement` on this store, in any process, that
	 * something new was committed. Those of this process are called at once, on this thread;
	 * others soon, at most every 20 ms; a call can get lost. `announcement` is static. Any
	 * thread, never blocks.
	 */
	void (*announce)(struct store *store, const char *announcement);

	/* `heard` is called on any thread and must not block nor listen. `announcement` is static.
	 */
	void (*listen)(struct store *store, const char *announcement, void (*heard)(void *context),
		void *context);

	/* When it returns, nothing is called with this context any more. */
	void (*unlisten)(struct store *store, void *context);

	/* How often the engine failed, by kind; a race that was lost to others does not count. */
	int64_t (*error_count)(struct store *store, enum status kind);

	/* After all sessions are closed. */
	void (*free)(struct store *store);
};

/* The head of each adapter's own store. */
struct store {
	const struct store_ops *ops;
	const struct store_repositories *repositories;
	const char *name;   /* "counts-store": what /readyz and the metrics call it */
	const char *engine; /* "sqlite", "postgres" */
	size_t lanes_default;
	bool single_saves_a_trip; /* TRANSACTION_SINGLE commits in the round trip of its verb */
};

/* What is behind all texts that begin with `prefix`, of ASCII, in the order of bytes. */
static inline struct slice prefix_end(struct arena *arena, struct slice prefix)
{
	char *end = arena_alloc(arena, prefix.len);

	memcpy(end, prefix.data, prefix.len);
	end[prefix.len - 1]++;
	return slice_make(end, prefix.len);
}

static inline void session_close(struct session *session)
{
	session->ops->close(session);
}

#endif

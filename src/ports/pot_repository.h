/*
 * Where pots and their coins are kept: the outbound port of the pot service. All functions block,
 * take a session of the same engine, and return what ports/store.h lists.
 *
 * The contents of a pot are changed under its lock, a token in the table with an end:
 *
 *   lock               event                          next
 *   free, or expired   take() with a token            held by the token until now + ttl
 *   held by another    take()                         the same; the pot is `busy`
 *   held by a token    put() with that token          changed, and free
 *   held by another    put()                          the same: nothing is changed, RERUN
 *
 * All of it happens in one transaction, so a lock that can be seen from outside is somebody else's.
 */
#ifndef QUIPU_PORTS_POT_REPOSITORY_H
#define QUIPU_PORTS_POT_REPOSITORY_H

#include "base/uuid.h"
#include "ports/store.h"

/* Kinds of coins, in the order of the numbers by which they are known outside and in the table. */
enum coin_kind { COIN_BRONZE, COIN_SILVER, COIN_GOLD };
#define COIN_KINDS 3

static const int32_t coin_denominations[COIN_KINDS] = {1, 10, 100};

/* How many coins of each kind. */
struct coins {
	int32_t of[COIN_KINDS];
};

struct pot_row {
	int32_t pot_id;
	bool exists;
	struct slice name;
	int32_t max_coins;
	int64_t created_us;
};

/* A pot to be changed. */
struct pot_content {
	int32_t pot_id;
	bool exists; /* and we have its lock */
	bool busy;   /* another has its lock, or, with TRANSACTION_SKIP, its row */
	int32_t max_coins;
	struct coins coins;
};

/* What is to be in a pot. */
struct pot_change {
	int32_t pot_id;
	bool is_changed[COIN_KINDS]; /* the others are not written */
	struct coins coins;
};

struct pot_lock {
	char token[UUID_SIZE];
	int64_t ttl_us;
};

/* A page of all pots in the order of their ids. */
struct pot_page {
	int64_t offset;
	int32_t limit;
	struct pot_row *pots; /* out */
	size_t count;         /* out */
};

/* A pot as its rows are, for `quipu verify`. */
struct pot_facts {
	int32_t pot_id;
	struct slice name;
	int32_t max_coins;
	int64_t created_us;
	bool has_lock;
	bool has_lock_end; /* lock_expire_time */
	int64_t coin_total;
};

/* A row of coin, whatever is in it. */
struct coin_facts {
	int64_t id;
	int64_t pot_id;
	bool pot_exists;
	int64_t denomination;
	int64_t count;
};

struct pot_repository;

struct pot_repository_ops {
	/*
	 * In a transaction. Takes the locks of the pots, unique and sorted by id, that are there
	 * and free, and then reads what is in them.
	 */
	QP_MUST_CHECK enum status (*take)(const struct pot_repository *repository,
		struct session *session, const struct pot_lock *lock, struct pot_content *pots,
		size_t count);

	/*
	 * In a transaction. Writes the changed kinds of pots that take() has taken with this lock,
	 * sorted by id, and releases them. RERUN: one of them is not held with it; then nothing is
	 * changed.
	 */
	QP_MUST_CHECK enum status (*put)(const struct pot_repository *repository,
		struct session *session, const struct pot_lock *lock,
		const struct pot_change *changes, size_t count);

	/*
	 * In a transaction. Makes pots of names that are free, unique and sorted by bytes, and
	 * fills in their ids and times; `exists` is false where the name is taken.
	 */
	QP_MUST_CHECK enum status (*create)(const struct pot_repository *repository,
		struct session *session, struct pot_row *pots, size_t count);

	/* Outside a transaction, and without any lock: looks pots up by their ids or their names.
	 * Names are in memory of `arena`. */
	QP_MUST_CHECK enum status (*find)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct pot_row *pots, size_t count);
	QP_MUST_CHECK enum status (*find_names)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct pot_row *pots, size_t count);

	/* The same for what is in them. */
	QP_MUST_CHECK enum status (*find_coins)(const struct pot_repository *repository,
		struct session *session, struct pot_content *pots, size_t count);

	/* The same for pages; also how many pots there are. */
	QP_MUST_CHECK enum status (*list)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct pot_page *pages, size_t count,
		int64_t *total);

	/* Outside a transaction: a page of all pots, and of all rows of coin, by id
	 * (page->after_number). */
	QP_MUST_CHECK enum status (*list_facts)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct pot_facts *pots);
	QP_MUST_CHECK enum status (*list_coins)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct coin_facts *coins);
};

/* The head of each adapter's own repository. */
struct pot_repository {
	const struct pot_repository_ops *ops;
};

/* The place of a denomination among the kinds, COIN_KINDS for one that is none of them. */
static inline size_t coin_kind_of(int32_t denomination)
{
	size_t kind = 0;

	while (kind < COIN_KINDS && coin_denominations[kind] != denomination)
		kind++;
	return kind;
}

#endif

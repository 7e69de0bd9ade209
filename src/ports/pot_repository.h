/*
 * Stores pots and their coins for the pot service. All functions block, take a session of the same
 * store, and return a status that ports/store.h lists.
 *
 * The contents of a pot change only under its lock, which is a token in the table with an expiry:
 *
 *   lock               event                          next
 *   free, or expired   take() with a token            held by the token until now + ttl
 *   held by another    take()                         unchanged; the pot is `busy`
 *   held by a token    put() with that token          free; the contents are changed
 *   held by another    put()                          unchanged; put() returns RERUN
 *
 * take() and put() share a transaction, so other sessions never see the locks that Quipu takes. A
 * lock that a transaction sees was taken by another program.
 */
#ifndef QUIPU_PORTS_POT_REPOSITORY_H
#define QUIPU_PORTS_POT_REPOSITORY_H

#include "base/uuid.h"
#include "ports/store.h"

/* Kinds of coins, sorted by denomination. In the API and in the table `coin`, a kind is
 * represented by its denomination. */
enum coin_kind { COIN_BRONZE, COIN_SILVER, COIN_GOLD };
#define COIN_KINDS 3

static const int32_t coin_denominations[COIN_KINDS] = {1, 10, 100};

/* The number of coins of each kind. */
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

/* A pot and its coins. */
struct pot_content {
	int32_t pot_id;
	bool exists; /* after take(): the pot exists and the caller holds its lock */
	bool busy;   /* another token holds the pot's lock or, under TRANSACTION_SKIP, another
			session has locked its row */
	int32_t max_coins;
	struct coins coins;
};

/* The new contents of a pot. */
struct pot_change {
	int32_t pot_id;
	bool is_changed[COIN_KINDS]; /* true for each kind of coin that put() must write */
	struct coins coins;
};

struct pot_lock {
	char token[UUID_SIZE];
	int64_t ttl_us;
};

/* A page of all pots, sorted by id. */
struct pot_page {
	int64_t offset;
	int32_t limit;
	struct pot_row *pots; /* output, allocated from the arena */
	size_t count;         /* output: how many pots the page has */
};

/* A pot as it is stored, for `quipu verify`. */
struct pot_facts {
	int32_t pot_id;
	struct slice name;
	int32_t max_coins;
	int64_t created_us;
	bool has_lock;
	bool has_lock_end; /* the column lock_expire_time is not NULL */
	int64_t coin_total;
};

/* A row of the table coin as it is stored, for `quipu verify`; it may violate the rules. */
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
	 * Takes the lock of each given pot that exists and is free, and reads its contents. Pots
	 * are unique and sorted by id. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*take)(const struct pot_repository *repository,
		struct session *session, const struct pot_lock *lock, struct pot_content *pots,
		size_t count);

	/*
	 * Writes the changed kinds of coins into pots that take() has locked with `lock`, and
	 * releases the locks. Changes are sorted by pot_id. If another token holds the lock of one
	 * of the pots, returns RERUN and changes nothing. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*put)(const struct pot_repository *repository,
		struct session *session, const struct pot_lock *lock,
		const struct pot_change *changes, size_t count);

	/*
	 * Creates pots and fills in their ids and times. Names are unique and sorted by bytes. Sets
	 * `exists` to true in each pot that it has created, and to false if another pot already has
	 * the name. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*create)(const struct pot_repository *repository,
		struct session *session, struct pot_row *pots, size_t count);

	/* find() looks up pots by id, find_names() by name; neither locks them. The names in the
	 * rows are allocated from `arena`. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*find)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct pot_row *pots, size_t count);
	QP_MUST_CHECK enum status (*find_names)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct pot_row *pots, size_t count);

	/* Reads the contents of pots, without locking the pots. Must be called outside a
	 * transaction. */
	QP_MUST_CHECK enum status (*find_coins)(const struct pot_repository *repository,
		struct session *session, struct pot_content *pots, size_t count);

	/* Reads several pages at once, and sets `*total` to the number of all pots. Must be called
	 * outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct pot_page *pages, size_t count,
		int64_t *total);

	/* list_facts() reads a page of all pots, list_coins() reads a page of all rows of the table
	 * coin, both sorted by id (page->after_number). Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list_facts)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct pot_facts *pots);
	QP_MUST_CHECK enum status (*list_coins)(const struct pot_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct coin_facts *coins);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct pot_repository {
	const struct pot_repository_ops *ops;
};

/* Returns the kind with this denomination, or COIN_KINDS if there is none. */
static inline size_t coin_kind_of(int32_t denomination)
{
	size_t kind = 0;

	while (kind < COIN_KINDS && coin_denominations[kind] != denomination)
		kind++;
	return kind;
}

#endif

/*
 * Pots and their coins in SQLite. A pot's lock is a token and an expiry in the pot's row. Sessions
 * of this process never compete for the lock, because only one of them writes at a time; the lock
 * keeps out other programs that write to the file. The WHERE clause of every change checks the
 * token, so a batch that has lost its lock changes nothing and runs again.
 */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/store/sqlite/sqlite_internal.h"

/* clang-format off */
static const char take_sql[] =
	"UPDATE pot SET lock = ?2, lock_expire_time = ?3 "
	"WHERE id = ?1 AND (lock IS NULL OR lock_expire_time <= ?4)";

/*
 * change_sql and change_or_add_sql change a row only while the token ?4 holds the pot's lock.
 * change_or_add_sql can also insert a kind of coin that was never in the pot, but takes several
 * times as long.
 */
static const char change_sql[] =
	"UPDATE coin SET coin_count = ?3 "
	"WHERE pot_id = ?1 AND denomination = ?2 "
	"  AND (SELECT lock FROM pot WHERE id = ?1) = ?4";
static const char change_or_add_sql[] =
	"INSERT INTO coin (pot_id, denomination, coin_count) "
	"SELECT id, ?2, ?3 "
	"FROM pot "
	"WHERE id = ?1 AND lock = ?4 "
	"ON CONFLICT (pot_id, denomination) DO UPDATE SET coin_count = excluded.coin_count";

static const char release_sql[] =
	"UPDATE pot SET lock = NULL, lock_expire_time = NULL "
	"WHERE id = ?1 AND lock = ?2";

/* Inserts nothing if the name is taken, so that no id is used up: ids have only 32 bits. */
static const char create_sql[] =
	"INSERT INTO pot (pot_name, max_coins, create_time) "
	"SELECT ?1, ?2, ?3 "
	"WHERE NOT EXISTS (SELECT 1 FROM pot WHERE pot_name = ?1) "
	"RETURNING id";
/* clang-format on */

#define POT_COLUMNS "id, pot_name, max_coins, create_time"

static const char find_sql[] = "SELECT " POT_COLUMNS " FROM pot WHERE id = ?1";
static const char find_name_sql[] = "SELECT " POT_COLUMNS " FROM pot WHERE pot_name = ?1";

/* clang-format off */
/* Returns one row with the denomination 0 and the pot's limit, and one row for each kind of
 * coin. */
static const char content_sql[] =
	"SELECT 0, max_coins "
	"FROM pot "
	"WHERE id = ?1 "
	"UNION ALL "
	"SELECT denomination, coin_count "
	"FROM coin "
	"WHERE pot_id = ?1";
/* clang-format on */

static const char page_sql[] = "SELECT " POT_COLUMNS " FROM pot ORDER BY id LIMIT ?1 OFFSET ?2";
static const char total_sql[] = "SELECT count(*) FROM pot";

/* ---- changing ---------------------------------------------------------------------------- */

static enum status take_locks(struct sqlite_session *session, const struct pot_lock *lock,
	struct pot_content *pots, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, take_sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		struct pot_content *pot = &pots[i];

		pot->exists =
			sqlite_query_change(&query,
				SQLITE_VALUES(sqlite_int(pot->pot_id),
					sqlite_text(slice_of(lock->token)),
					sqlite_int(now_us + lock->ttl_us), sqlite_int(now_us))) > 0;
	}
	return sqlite_query_close(&query);
}

/* Reads the contents of a pot. Returns false if the pot does not exist. */
static bool read_content(struct sqlite_query *query, struct pot_content *pot)
{
	bool is_there = false;

	pot->coins = (struct coins){0};
	sqlite_query_start(query, SQLITE_VALUES(sqlite_int(pot->pot_id)));
	while (sqlite_query_next(query)) {
		int32_t denomination = (int32_t)sqlite_query_int(query, 0);
		int32_t count = (int32_t)sqlite_query_int(query, 1);

		if (denomination == 0) {
			assert(!is_there);
			is_there = true;
			pot->max_coins = count;
		} else {
			assert(coin_kind_of(denomination) < COIN_KINDS);
			pot->coins.of[coin_kind_of(denomination)] = count;
		}
	}
	return is_there;
}

/* Reads the contents of the pots, and sets `busy` in each pot that exists but whose lock
 * take_locks() could not take, because another token holds it. */
static enum status read_taken(
	struct sqlite_session *session, struct pot_content *pots, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, content_sql);

	for (size_t i = 0; i < count; i++)
		pots[i].busy = read_content(&query, &pots[i]) && !pots[i].exists;
	return sqlite_query_close(&query);
}

static enum status take(const struct pot_repository *repository, struct session *base,
	const struct pot_lock *lock, struct pot_content *pots, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = take_locks(session, lock, pots, count);

	if (status == STATUS_OK)
		status = read_taken(session, pots, count);
	return status;
}

/* Runs `sql` for each changed kind of coin. Sets `missing` to the number of runs that changed no
 * row. */
static enum status run_changes(struct sqlite_session *session, const char *sql,
	const struct pot_lock *lock, const struct pot_change *changes, size_t count,
	size_t *missing)
{
	struct sqlite_query query = sqlite_query_open(session, sql);

	*missing = 0;
	for (size_t i = 0; i < count; i++) {
		for (size_t kind = 0; kind < COIN_KINDS; kind++) {
			if (!changes[i].is_changed[kind])
				continue;
			*missing += sqlite_query_change(&query,
					    SQLITE_VALUES(sqlite_int(changes[i].pot_id),
						    sqlite_int(coin_denominations[kind]),
						    sqlite_int(changes[i].coins.of[kind]),
						    sqlite_text(slice_of(lock->token)))) == 0;
		}
	}
	return sqlite_query_close(&query);
}

static enum status change(struct sqlite_session *session, const struct pot_lock *lock,
	const struct pot_change *changes, size_t count)
{
	size_t missing;
	enum status status = run_changes(session, change_sql, lock, changes, count, &missing);

	if (status == STATUS_OK && missing > 0)
		status = run_changes(session, change_or_add_sql, lock, changes, count, &missing);
	if (status == STATUS_OK && missing > 0)
		return sqlite_session_rerun(session);
	return status;
}

static enum status put(const struct pot_repository *repository, struct session *base,
	const struct pot_lock *lock, const struct pot_change *changes, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = change(session, lock, changes, count);
	struct sqlite_query query;

	if (status != STATUS_OK)
		return status;
	query = sqlite_query_open(session, release_sql);
	for (size_t i = 0; i < count; i++)
		sqlite_query_change_one(&query, SQLITE_VALUES(sqlite_int(changes[i].pot_id),
							sqlite_text(slice_of(lock->token))));
	return sqlite_query_close(&query);
}

static enum status create(const struct pot_repository *repository, struct session *base,
	struct pot_row *pots, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, create_sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		struct pot_row *pot = &pots[i];

		sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(pot->name),
						   sqlite_int(pot->max_coins), sqlite_int(now_us)));
		pot->exists = sqlite_query_next(&query);
		if (!pot->exists)
			continue;
		pot->pot_id = (int32_t)sqlite_query_int(&query, 0);
		pot->created_us = now_us;
	}
	return sqlite_query_close(&query);
}

/* ---- looking up -------------------------------------------------------------------------- */

static void fill_pot(struct pot_row *pot, struct arena *arena, const struct sqlite_query *query)
{
	pot->exists = true;
	pot->pot_id = (int32_t)sqlite_query_int(query, 0);
	pot->name = arena_copy(arena, sqlite_query_bytes(query, 1));
	pot->max_coins = (int32_t)sqlite_query_int(query, 2);
	pot->created_us = sqlite_query_int(query, 3);
}

static enum status find_pots(struct sqlite_session *session, struct arena *arena,
	struct pot_row *pots, size_t count, bool by_name)
{
	struct sqlite_query query = sqlite_query_open(session, by_name ? find_name_sql : find_sql);

	for (size_t i = 0; i < count; i++) {
		struct sqlite_value key =
			by_name ? sqlite_text(pots[i].name) : sqlite_int(pots[i].pot_id);

		sqlite_query_start(&query, &key, 1);
		pots[i].exists = false;
		if (sqlite_query_next(&query))
			fill_pot(&pots[i], arena, &query);
	}
	return sqlite_query_close(&query);
}

static enum status find_in_snapshot(
	struct session *base, struct arena *arena, struct pot_row *pots, size_t count, bool by_name)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = find_pots(session, arena, pots, count, by_name);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

static enum status find(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_row *pots, size_t count)
{
	return find_in_snapshot(session, arena, pots, count, false);
}

static enum status find_names(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_row *pots, size_t count)
{
	return find_in_snapshot(session, arena, pots, count, true);
}

static enum status read_existing(
	struct sqlite_session *session, struct pot_content *pots, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, content_sql);

	for (size_t i = 0; i < count; i++) {
		pots[i].busy = false;
		pots[i].exists = read_content(&query, &pots[i]);
	}
	return sqlite_query_close(&query);
}

static enum status find_coins(const struct pot_repository *repository, struct session *base,
	struct pot_content *pots, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = read_existing(session, pots, count);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

static enum status count_pots(struct sqlite_session *session, int64_t *total)
{
	struct sqlite_query query = sqlite_query_open(session, total_sql);

	sqlite_query_start(&query, NULL, 0);
	if (sqlite_query_next(&query))
		*total = sqlite_query_int(&query, 0);
	return sqlite_query_close(&query);
}

/* Fills the pages. Skipping pots with OFFSET takes as long as reading them, so a page that begins
 * after the last pot is left empty without a query. */
static enum status fill_pages(struct sqlite_session *session, struct arena *arena,
	struct pot_page *pages, size_t count, int64_t total)
{
	struct sqlite_query query = sqlite_query_open(session, page_sql);

	for (size_t i = 0; i < count; i++) {
		struct pot_page *page = &pages[i];

		page->pots = arena_array(arena, struct pot_row, (size_t)page->limit);
		page->count = 0;
		if (page->offset >= total)
			continue;
		sqlite_query_start(
			&query, SQLITE_VALUES(sqlite_int(page->limit), sqlite_int(page->offset)));
		while (sqlite_query_next(&query))
			fill_pot(&page->pots[page->count++], arena, &query);
	}
	return sqlite_query_close(&query);
}

static enum status list(const struct pot_repository *repository, struct session *base,
	struct arena *arena, struct pot_page *pages, size_t count, int64_t *total)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = count_pots(session, total);
	if (status == STATUS_OK)
		status = fill_pages(session, arena, pages, count, *total);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

/* ---- verifying --------------------------------------------------------------------------- */

static void fill_facts(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct pot_facts *)row = (struct pot_facts){
		.pot_id = (int32_t)sqlite_query_int(query, 0),
		.name = sqlite_query_keep(query, arena, 1),
		.max_coins = (int32_t)sqlite_query_int(query, 2),
		.created_us = sqlite_query_int(query, 3),
		.has_lock = sqlite_query_int(query, 4) != 0,
		.has_lock_end = sqlite_query_int(query, 5) != 0,
		.coin_total = sqlite_query_int(query, 6),
	};
}

/* clang-format off */
static const char list_facts_sql[] =
	"SELECT " POT_COLUMNS ", lock IS NOT NULL, lock_expire_time IS NOT NULL, "
	"    (SELECT coalesce(sum(coin_count), 0) FROM coin WHERE pot_id = pot.id) "
	"FROM pot "
	"WHERE id > ?3 "
	"ORDER BY id LIMIT ?5";
/* clang-format on */

static enum status list_facts(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct pot_facts *pots)
{
	static const struct sqlite_list all = {
		.sql = list_facts_sql,
		.row_size = sizeof(struct pot_facts),
		.fill = fill_facts,
	};

	return sqlite_list_rows(session, arena, &all, page, pots);
}

static void fill_coin(void *row, struct arena *arena, const struct sqlite_query *query)
{
	(void)arena;
	*(struct coin_facts *)row = (struct coin_facts){
		.id = sqlite_query_int(query, 0),
		.pot_id = sqlite_query_int(query, 1),
		.pot_exists = sqlite_query_int(query, 2) != 0,
		.denomination = sqlite_query_int(query, 3),
		.count = sqlite_query_int(query, 4),
	};
}

/* clang-format off */
static const char list_coins_sql[] =
	"SELECT id, pot_id, EXISTS (SELECT 1 FROM pot WHERE pot.id = coin.pot_id), "
	"    denomination, coin_count "
	"FROM coin "
	"WHERE id > ?3 "
	"ORDER BY id LIMIT ?5";
/* clang-format on */

static enum status list_coins(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct coin_facts *coins)
{
	static const struct sqlite_list all = {
		.sql = list_coins_sql,
		.row_size = sizeof(struct coin_facts),
		.fill = fill_coin,
	};

	return sqlite_list_rows(session, arena, &all, page, coins);
}

static const struct pot_repository_ops ops = {
	.take = take,
	.put = put,
	.create = create,
	.find = find,
	.find_names = find_names,
	.find_coins = find_coins,
	.list = list,
	.list_facts = list_facts,
	.list_coins = list_coins,
};

const struct pot_repository sqlite_pot_repository = {.ops = &ops};

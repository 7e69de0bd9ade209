/*
 * Pots and their coins in PostgreSQL. A pot's lock is a token and an expiry in the pot's row.
 * Quipu's own processes already take turns, because the UPDATE that sets the token locks the row;
 * the token keeps other programs out. Every change checks the token, so a batch that has lost its
 * lock changes nothing and runs again.
 */
#include "adapters/store/postgres/postgres_repositories.h"

#include <assert.h>

#include "adapters/store/postgres/postgres_internal.h"

#define IDS "unnest($1::int4[]) WITH ORDINALITY AS w(id, n)"
#define IS_FREE "(p.lock IS NULL OR p.lock_expire_time <= (SELECT quipu_now()))"
/* clang-format off */
#define SET_LOCK                                                                             \
	"SET lock = $2::text::uuid, "                                                        \
	"    lock_expire_time = (SELECT quipu_now()) + $3::int8 * interval '1 microsecond' "

/* The planner may only use a nested loop over the ids (see session_settings in postgres_store.c),
 * so rows are locked in the order of their ids. */
static const struct pg_statement take_statement = {
	"quipu_pots_take",
	"UPDATE pot AS p " SET_LOCK
	"FROM " IDS " "
	"WHERE p.id = w.id AND " IS_FREE " "
	"RETURNING w.n, p.max_coins",
};

/* Like take_statement, but skips rows that another transaction has locked. */
static const struct pg_statement take_free_statement = {
	"quipu_pots_take_free",
	"WITH free AS MATERIALIZED ("
	"  SELECT p.id, w.n "
	"  FROM " IDS " "
	"  JOIN pot p ON p.id = w.id "
	"  WHERE " IS_FREE " "
	"  ORDER BY w.n FOR UPDATE OF p SKIP LOCKED) "
	"UPDATE pot AS p " SET_LOCK
	"FROM free "
	"WHERE p.id = free.id AND " IS_FREE " "
	"RETURNING free.n, p.max_coins",
};

static const struct pg_statement visible_statement = {
	"quipu_pots_visible",
	"SELECT w.n, p.max_coins "
	"FROM " IDS " "
	"JOIN pot p ON p.id = w.id",
};

/* The coins are read by a statement of their own, because the statement that takes the locks may
 * have to wait, and would then read the coins as they were before it waited. */
static const struct pg_statement coins_statement = {
	"quipu_pots_coins",
	"SELECT w.n, c.denomination, c.coin_count "
	"FROM " IDS " "
	"JOIN coin c ON c.pot_id = w.id",
};

/* Changes the coins of a pot only while the token $4 holds the pot's lock. */
static const struct pg_statement change_statement = {
	"quipu_pots_change",
	"INSERT INTO coin AS c (pot_id, denomination, coin_count) "
	"SELECT p.id, e.denomination, e.coin_count "
	"FROM unnest($1::int4[], $2::int4[], $3::int4[]) "
	"    AS e(pot_id, denomination, coin_count) "
	"JOIN pot p ON p.id = e.pot_id AND p.lock = $4::text::uuid "
	"ON CONFLICT (pot_id, denomination) DO UPDATE SET coin_count = excluded.coin_count "
	"RETURNING 1",
};

static const struct pg_statement release_statement = {
	"quipu_pots_release",
	"UPDATE pot AS p SET lock = NULL, lock_expire_time = NULL "
	"FROM " IDS " "
	"WHERE p.id = w.id AND p.lock = $2::text::uuid "
	"RETURNING 1",
};

/* Does not try to insert a pot whose name is taken, because each attempt uses up an id, and ids have
 * only 32 bits. */
static const struct pg_statement create_statement = {
	"quipu_pots_create",
	"WITH made AS ("
	"  INSERT INTO pot (pot_name, max_coins) "
	"  SELECT w.name, w.max_coins "
	"  FROM unnest($1::text[], $2::int4[]) WITH ORDINALITY AS w(name, max_coins, n) "
	"  WHERE NOT EXISTS (SELECT 1 FROM pot p WHERE p.pot_name = w.name) "
	"  ORDER BY w.n "
	"  ON CONFLICT (pot_name) DO NOTHING "
	"  RETURNING id, pot_name, create_time) "
	"SELECT w.n, made.id, " PG_TO_US("made.create_time") " "
	"FROM unnest($1::text[]) WITH ORDINALITY AS w(name, n) "
	"JOIN made ON made.pot_name = w.name",
};

#define CREATED_US PG_TO_US("p.create_time")
#define POT_COLUMNS "p.id, p.pot_name, p.max_coins, " CREATED_US

static const struct pg_statement find_statement = {
	"quipu_pots_find",
	"SELECT w.n, " POT_COLUMNS " "
	"FROM " IDS " "
	"JOIN pot p ON p.id = w.id",
};

static const struct pg_statement find_names_statement = {
	"quipu_pots_find_names",
	"SELECT w.n, " POT_COLUMNS " "
	"FROM " PG_PLACES " "
	"JOIN pot p ON p.pot_name = w.id",
};
/* clang-format on */

static const struct pg_statement total_statement = {"quipu_pots_total", "SELECT count(*) FROM pot"};

/* clang-format off */
static const struct pg_statement pages_statement = {
	"quipu_pots_pages",
	"SELECT w.n, p.* "
	"FROM unnest($1::int8[], $2::int4[]) WITH ORDINALITY AS w(first, most, n), "
	"LATERAL ("
	"  SELECT " POT_COLUMNS " "
	"  FROM pot p "
	"  ORDER BY p.id OFFSET w.first LIMIT w.most) p "
	"ORDER BY w.n, p.id",
};

/* The subquery is cheap: a pot has at most three rows in the table coin, and PostgreSQL finds them
 * through the index on pot_id. */
static const struct pg_statement list_facts_statement = {
	"quipu_pots_list_facts",
	"SELECT p.id, p.pot_name, p.max_coins, " CREATED_US ", p.lock IS NOT NULL, "
	"    p.lock_expire_time IS NOT NULL, "
	"    (SELECT coalesce(sum(c.coin_count), 0)::int8 FROM coin c WHERE c.pot_id = p.id) "
	"FROM pot p "
	"WHERE p.id > $1::int8 "
	"ORDER BY p.id LIMIT $2::int8",
};

#define POT_IS_THERE PG_FINDS("pot p WHERE p.id = c.pot_id")

static const struct pg_statement list_coins_statement = {
	"quipu_pots_list_coins",
	"SELECT c.id, c.pot_id, " POT_IS_THERE ", c.denomination, c.coin_count "
	"FROM coin c "
	"WHERE c.id > $1::int8 "
	"ORDER BY c.id LIMIT $2::int8",
};
/* clang-format on */

/* ---- parameters -------------------------------------------------------------------------- */

/* Returns the ids of `count` structs of `size` bytes, each of which begins with its id. */
static struct pg_param ids_of(
	struct pg_session *session, const void *first, size_t size, size_t count)
{
	struct pg_array ids = pg_array_of(session, PG_OID_INT4, count);

	for (size_t i = 0; i < count; i++)
		pg_array_int4(&ids, *(const int32_t *)((const char *)first + i * size));
	return pg_param_array(&ids);
}

static struct pg_param token_of(const struct pot_lock *lock)
{
	return (struct pg_param){.data = lock->token, .len = UUID_SIZE - 1};
}

/* ---- changing ---------------------------------------------------------------------------- */

static void fill_coins(struct pot_content *pots, size_t count, const PGresult *found)
{
	for (size_t i = 0; i < count; i++)
		pots[i].coins = (struct coins){0};
	for (int row = 0; row < PQntuples(found); row++) {
		size_t kind = coin_kind_of(pg_int4(found, row, 1));

		assert(kind < COIN_KINDS);
		pots[pg_place(found, row, count)].coins.of[kind] = pg_int4(found, row, 2);
	}
}

/* Fills in the pots that are in the result, and returns their number. */
static size_t fill_existing(struct pot_content *pots, size_t count, const PGresult *found)
{
	for (size_t i = 0; i < count; i++) {
		pots[i].exists = false;
		pots[i].busy = false;
	}
	for (int row = 0; row < PQntuples(found); row++) {
		struct pot_content *pot = &pots[pg_place(found, row, count)];

		pot->exists = true;
		pot->max_coins = pg_int4(found, row, 1);
	}
	return (size_t)PQntuples(found);
}

/* Marks as busy the pots that exist but could not be taken: another token or session holds them. */
static enum status find_busy(struct pg_session *session, struct pot_content *pots, size_t count)
{
	struct pg_param ids = ids_of(session, pots, sizeof(*pots), count);
	enum status status = pg_run(session, &visible_statement, &ids, 1);

	if (status != STATUS_OK)
		return status;
	for (int row = 0; row < PQntuples(session->results[0]); row++) {
		struct pot_content *pot = &pots[pg_place(session->results[0], row, count)];

		pot->busy = !pot->exists;
	}
	return STATUS_OK;
}

static enum status take(const struct pot_repository *repository, struct session *base,
	const struct pot_lock *lock, struct pot_content *pots, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	bool skip = session->mode == TRANSACTION_SKIP;
	struct pg_param params[3] = {ids_of(session, pots, sizeof(*pots), count), token_of(lock),
		pg_param_int8(session, lock->ttl_us)};
	enum status status;

	pg_queue(session, skip ? &take_free_statement : &take_statement, params, 3);
	pg_queue(session, &coins_statement, params, 1);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	fill_coins(pots, count, session->results[1]);
	if (fill_existing(pots, count, session->results[0]) == count)
		return STATUS_OK;
	return find_busy(session, pots, count);
}

/* Queues one change for each kind of coin that has changed in a pot. Returns the number of
 * changes. */
static size_t queue_changes(struct pg_session *session, const struct pot_lock *lock,
	const struct pot_change *changes, size_t count)
{
	struct pg_array columns[3];
	struct pg_param params[4];
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++) {
		for (size_t kind = 0; kind < COIN_KINDS; kind++)
			wanted += changes[i].is_changed[kind];
	}
	if (wanted == 0)
		return 0;
	for (size_t i = 0; i < 3; i++)
		columns[i] = pg_array_of(session, PG_OID_INT4, wanted);
	for (size_t i = 0; i < count; i++) {
		for (size_t kind = 0; kind < COIN_KINDS; kind++) {
			if (!changes[i].is_changed[kind])
				continue;
			pg_array_int4(&columns[0], changes[i].pot_id);
			pg_array_int4(&columns[1], coin_denominations[kind]);
			pg_array_int4(&columns[2], changes[i].coins.of[kind]);
		}
	}
	for (size_t i = 0; i < 3; i++)
		params[i] = pg_param_array(&columns[i]);
	params[3] = token_of(lock);
	pg_queue(session, &change_statement, params, 4);
	return wanted;
}

static enum status put(const struct pot_repository *repository, struct session *base,
	const struct pot_lock *lock, const struct pot_change *changes, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	size_t wanted = queue_changes(session, lock, changes, count);
	size_t release_slot = session->queued;
	struct pg_param params[2] = {
		ids_of(session, changes, sizeof(*changes), count), token_of(lock)};
	enum status status;

	pg_queue(session, &release_statement, params, 2);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	if ((wanted == 0 || (size_t)PQntuples(session->results[0]) == wanted) &&
		(size_t)PQntuples(session->results[release_slot]) == count)
		return STATUS_OK;
	base->ops->rollback(base);
	return STATUS_RERUN;
}

static enum status create(const struct pot_repository *repository, struct session *base,
	struct pot_row *pots, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_array names = pg_array_of(session, PG_OID_TEXT, count);
	struct pg_array max_coins = pg_array_of(session, PG_OID_INT4, count);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		pots[i].exists = false;
		pg_array_text(&names, pots[i].name);
		pg_array_int4(&max_coins, pots[i].max_coins);
	}
	struct pg_param params[2] = {pg_param_array(&names), pg_param_array(&max_coins)};

	status = pg_run(session, &create_statement, params, 2);
	if (status != STATUS_OK)
		return status;
	for (int row = 0; row < PQntuples(session->results[0]); row++) {
		struct pot_row *pot = &pots[pg_place(session->results[0], row, count)];

		pot->exists = true;
		pot->pot_id = pg_int4(session->results[0], row, 1);
		pot->created_us = pg_int8(session->results[0], row, 2);
	}
	return STATUS_OK;
}

/* ---- looking up -------------------------------------------------------------------------- */

static void fill_pot(struct pot_row *pot, struct arena *arena, const PGresult *found, int row)
{
	pot->exists = true;
	pot->pot_id = pg_int4(found, row, 1);
	pot->name = arena_copy(arena, pg_slice(found, row, 2));
	pot->max_coins = pg_int4(found, row, 3);
	pot->created_us = pg_int8(found, row, 4);
}

static enum status find_by(struct pg_session *session, const struct pg_statement *statement,
	struct pg_param keys, struct arena *arena, struct pot_row *pots, size_t count)
{
	enum status status = pg_run(session, statement, &keys, 1);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++)
		pots[i].exists = false;
	for (int row = 0; row < PQntuples(session->results[0]); row++)
		fill_pot(&pots[pg_place(session->results[0], row, count)], arena,
			session->results[0], row);
	return STATUS_OK;
}

static enum status find(const struct pot_repository *repository, struct session *base,
	struct arena *arena, struct pot_row *pots, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = ids_of(session, pots, sizeof(*pots), count);

	return find_by(session, &find_statement, ids, arena, pots, count);
}

static enum status find_names(const struct pot_repository *repository, struct session *base,
	struct arena *arena, struct pot_row *pots, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param names = pg_param_ids(session, &pots[0].name, sizeof(*pots), count);

	return find_by(session, &find_names_statement, names, arena, pots, count);
}

static enum status find_coins(const struct pot_repository *repository, struct session *base,
	struct pot_content *pots, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = ids_of(session, pots, sizeof(*pots), count);
	enum status status;

	pg_queue(session, &visible_statement, &ids, 1);
	pg_queue(session, &coins_statement, &ids, 1);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	fill_existing(pots, count, session->results[0]);
	fill_coins(pots, count, session->results[1]);
	return STATUS_OK;
}

static void fill_pages(
	struct arena *arena, struct pot_page *pages, size_t count, const PGresult *found)
{
	for (size_t i = 0; i < count; i++) {
		pages[i].pots = arena_array(arena, struct pot_row, (size_t)pages[i].limit);
		pages[i].count = 0;
	}
	for (int row = 0; row < PQntuples(found); row++) {
		struct pot_page *page = &pages[pg_place(found, row, count)];

		assert(page->count < (size_t)page->limit);
		fill_pot(&page->pots[page->count++], arena, found, row);
	}
}

/* Returns the LIMIT of each page. A page that begins after the last pot gets the LIMIT 0; otherwise
 * PostgreSQL would read all pots only to skip them for the OFFSET. */
static struct pg_param limits_of(
	struct pg_session *session, const struct pot_page *pages, size_t count, int64_t total)
{
	struct pg_array limits = pg_array_of(session, PG_OID_INT4, count);

	for (size_t i = 0; i < count; i++)
		pg_array_int4(&limits, pages[i].offset < total ? pages[i].limit : 0);
	return pg_param_array(&limits);
}

static struct pg_param offsets_of(
	struct pg_session *session, const struct pot_page *pages, size_t count)
{
	struct pg_array offsets = pg_array_of(session, PG_OID_INT8, count);

	for (size_t i = 0; i < count; i++)
		pg_array_int8(&offsets, pages[i].offset);
	return pg_param_array(&offsets);
}

static enum status list(const struct pot_repository *repository, struct session *base,
	struct arena *arena, struct pot_page *pages, size_t count, int64_t *total)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = pg_run(session, &total_statement, NULL, 0);
	struct pg_param params[2];

	if (status != STATUS_OK)
		return status;
	*total = pg_int8(session->results[0], 0, 0);
	params[0] = offsets_of(session, pages, count);
	params[1] = limits_of(session, pages, count, *total);
	status = pg_run(session, &pages_statement, params, 2);
	if (status == STATUS_OK)
		fill_pages(arena, pages, count, session->results[0]);
	return status;
}

/* ---- verifying --------------------------------------------------------------------------- */

static struct pot_facts facts_of(struct arena *arena, const PGresult *result, int row)
{
	return (struct pot_facts){
		.pot_id = pg_int4(result, row, 0),
		.name = pg_keep(arena, result, row, 1),
		.max_coins = pg_int4(result, row, 2),
		.created_us = pg_int8(result, row, 3),
		.has_lock = pg_bool(result, row, 4),
		.has_lock_end = pg_bool(result, row, 5),
		.coin_total = pg_int8(result, row, 6),
	};
}

static enum status list_facts(const struct pot_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct pot_facts *pots)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_int8(session, page->after_number)};
	enum status status = pg_list_rows(session, &list_facts_statement, params, 1, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		pots[i] = facts_of(arena, session->results[0], (int)i);
	return status;
}

static enum status list_coins(const struct pot_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct coin_facts *coins)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_int8(session, page->after_number)};
	enum status status = pg_list_rows(session, &list_coins_statement, params, 1, page);

	(void)arena;
	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		coins[i] = (struct coin_facts){
			.id = pg_int8(session->results[0], (int)i, 0),
			.pot_id = pg_int4(session->results[0], (int)i, 1),
			.pot_exists = pg_bool(session->results[0], (int)i, 2),
			.denomination = pg_int4(session->results[0], (int)i, 3),
			.count = pg_int4(session->results[0], (int)i, 4),
		};
	return status;
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

const struct pot_repository postgres_pot_repository = {.ops = &ops};

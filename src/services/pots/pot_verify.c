#include "services/pots/pot_verify.h"

#include "admin/verify_idempotency.h"
#include "services/pots/pot_rules.h"

static struct slice number_id(struct verify_page *page, int64_t number)
{
	struct buffer id = buffer_make(page->arena, 24);

	buffer_int(&id, number);
	return buffer_slice(&id);
}

/* ---- pots -------------------------------------------------------------------------------- */

static void check_pot(struct verify_page *page, const struct pot_facts *pot)
{
	struct slice id = number_id(page, pot->pot_id);

	if (!pot_name_is_valid(pot->name))
		verify_differ(page, id, "name", "pot %d: \"%.*s\" is not a valid name", pot->pot_id,
			(int)pot->name.len, pot->name.data);
	if (pot->max_coins < POT_MAX_COINS_LEAST)
		verify_differ(page, id, "max-coins", "pot %d: max_coins is %d", pot->pot_id,
			pot->max_coins);
	if (pot->coin_total > pot->max_coins)
		verify_differ(page, id, "over-max",
			"pot %d: it has %lld coins, but max_coins is %d", pot->pot_id,
			(long long)pot->coin_total, pot->max_coins);
	if (pot->has_lock != pot->has_lock_end)
		verify_differ(page, id, "lock", "pot %d: it has %s", pot->pot_id,
			pot->has_lock ? "a lock without an expiry time"
				      : "an expiry time without a lock");
	verify_time(page, id, "create_time", pot->created_us);
}

static enum status look_at_pots(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct pots *pots = context;
	struct pot_facts *rows = arena_array(page->arena, struct pot_facts, page->rows.limit);
	enum status status = pots->repository->ops->list_facts(
		pots->repository, session, page->arena, &page->rows, rows);

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_pot(page, &rows[i]);
	verify_finish_number(
		page, (struct slice){0}, (struct slice){0}, rows[page->rows.count - 1].pot_id);
	return STATUS_OK;
}

/* ---- coins ------------------------------------------------------------------------------- */

static void check_coins(struct verify_page *page, const struct coin_facts *coins)
{
	struct slice id = number_id(page, coins->pot_id);
	long long pot_id = coins->pot_id;

	if (coins->count < 0)
		verify_differ(page, id, "negative", "pot %lld: it has %lld coins of kind %lld",
			pot_id, (long long)coins->count, (long long)coins->denomination);
	if (coins->denomination < INT32_MIN || coins->denomination > INT32_MAX ||
		coin_kind_of((int32_t)coins->denomination) == COIN_KINDS)
		verify_differ(page, id, "kind", "pot %lld: it has coins of kind %lld", pot_id,
			(long long)coins->denomination);
	if (!coins->pot_exists)
		verify_differ(page, id, "no-pot", "pot %lld: there are coins, but no pot", pot_id);
}

static enum status look_at_coins(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct pots *pots = context;
	struct coin_facts *rows = arena_array(page->arena, struct coin_facts, page->rows.limit);
	enum status status = pots->repository->ops->list_coins(
		pots->repository, session, page->arena, &page->rows, rows);

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_coins(page, &rows[i]);
	verify_finish_number(
		page, (struct slice){0}, (struct slice){0}, rows[page->rows.count - 1].id);
	return STATUS_OK;
}

static enum status look_at_keys(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency keys = {.prefix = "POST /twirp/pyggpot."};

	return verify_idempotency_look(&keys, context, session, page);
}

struct verifier pots_verifier(const struct pots *pots)
{
	static const struct verify_part parts[] = {
		{"pots", look_at_pots},
		{"coins", look_at_coins},
		{"keys", look_at_keys},
	};

	return (struct verifier){
		.name = "pots",
		.parts = parts,
		.part_count = sizeof(parts) / sizeof(parts[0]),
		.context = pots,
		.lanes = &pots->lanes,
	};
}

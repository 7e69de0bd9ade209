/* Pots in the fake store. */
#include <assert.h>
#include <stdio.h>

#include "fake_store_data.h"

static struct fake_pot *find_pot(struct fake_store *fake, int32_t pot_id)
{
	bool is_there = pot_id >= 1 && (size_t)pot_id <= fake->data->pot_count;

	return is_there ? &fake->data->pots[pot_id - 1] : NULL;
}

static struct fake_pot *find_pot_name(struct fake_store *fake, struct slice name)
{
	for (size_t i = 0; i < fake->data->pot_count; i++) {
		if (slice_equal(fake->data->pots[i].row.name, name))
			return &fake->data->pots[i];
	}
	return NULL;
}

struct fake_pot fake_store_get_pot(struct fake_store *fake, int32_t pot_id)
{
	const struct fake_pot *pot = find_pot(fake, pot_id);

	return pot ? *pot : (struct fake_pot){0};
}

static struct fake_pot *add_pot(struct fake_store *fake, struct slice name, int32_t max_coins)
{
	struct fake_pot *pot = &fake->data->pots[fake->data->pot_count];

	assert(fake->data->pot_count < ROWS_MAX);
	*pot = (struct fake_pot){.row = {
					 .pot_id = (int32_t)++fake->data->pot_count,
					 .exists = true,
					 .name = arena_copy(&fake->arena, name),
					 .max_coins = max_coins,
					 .created_us = fake->now_us,
				 }};
	return pot;
}

int32_t fake_store_add_pot(struct fake_store *fake, const char *name, int32_t max_coins)
{
	return add_pot(fake, slice_of(name), max_coins)->row.pot_id;
}

void fake_store_lock_pot(
	struct fake_store *fake, int32_t pot_id, const char *token, int64_t until_us)
{
	struct fake_pot *pot = find_pot(fake, pot_id);

	snprintf(pot->token, sizeof(pot->token), "%s", token);
	pot->lock_until_us = until_us;
}

size_t fake_store_takes(const struct fake_store *fake)
{
	return fake->takes;
}

size_t fake_store_kinds_written(const struct fake_store *fake)
{
	return fake->kinds_written;
}

static enum status take_pots(const struct pot_repository *repository, struct session *session,
	const struct pot_lock *lock, struct pot_content *contents, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct pot_content *content = &contents[i];
		struct fake_pot *pot = find_pot(fake, content->pot_id);

		assert(i == 0 || contents[i - 1].pot_id < content->pot_id);
		content->busy = pot && pot->token[0] && pot->lock_until_us > fake->now_us;
		content->exists = pot && !content->busy;
		if (!content->exists)
			continue;
		content->max_coins = pot->row.max_coins;
		content->coins = pot->coins;
		memcpy(pot->token, lock->token, sizeof(pot->token));
		pot->lock_until_us = fake->now_us + lock->ttl_us;
		fake->takes++;
	}
	return status;
}

static void write_kinds(
	struct fake_store *fake, struct fake_pot *pot, const struct pot_change *change)
{
	for (size_t kind = 0; kind < COIN_KINDS; kind++) {
		if (!change->is_changed[kind])
			continue;
		pot->coins.of[kind] = change->coins.of[kind];
		fake->kinds_written++;
	}
}

static enum status put_pots(const struct pot_repository *repository, struct session *session,
	const struct pot_lock *lock, const struct pot_change *changes, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_pot *pot = find_pot(fake, changes[i].pot_id);

		if (strcmp(pot->token, lock->token) != 0) {
			fake_rollback(session);
			return STATUS_RERUN;
		}
		write_kinds(fake, pot, &changes[i]);
		pot->token[0] = '\0';
	}
	return status;
}

static enum status create_pots(const struct pot_repository *repository, struct session *session,
	struct pot_row *rows, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		assert(i == 0 || slice_compare(rows[i - 1].name, rows[i].name) < 0);
		rows[i].exists = !find_pot_name(fake, rows[i].name);
		if (rows[i].exists)
			rows[i] = add_pot(fake, rows[i].name, rows[i].max_coins)->row;
	}
	return status;
}

static enum status find_pots(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_row *rows, size_t count)
{
	enum status status = fake_pass(session);

	(void)arena;
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		rows[i] = fake_store_get_pot(fake_of(session), rows[i].pot_id).row;
	return status;
}

static enum status find_pot_names(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_row *rows, size_t count)
{
	enum status status = fake_pass(session);

	(void)arena;
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		const struct fake_pot *pot = find_pot_name(fake_of(session), rows[i].name);

		rows[i] = pot ? pot->row : (struct pot_row){0};
	}
	return status;
}

static enum status find_pot_coins(const struct pot_repository *repository, struct session *session,
	struct pot_content *contents, size_t count)
{
	enum status status = fake_pass(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_pot pot = fake_store_get_pot(fake_of(session), contents[i].pot_id);

		contents[i].exists = pot.row.exists;
		contents[i].coins = pot.coins;
	}
	return status;
}

static enum status list_pots(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_page *pages, size_t count, int64_t *total)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_pass(session);

	*total = (int64_t)fake->data->pot_count;
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct pot_page *page = &pages[i];

		page->pots = arena_array(arena, struct pot_row, (size_t)page->limit);
		page->count = 0;
		for (int64_t k = page->offset; k < *total && k < page->offset + page->limit; k++)
			page->pots[page->count++] = fake->data->pots[k].row;
	}
	return status;
}

static const struct pot_repository_ops fake_pot_repository_ops = {
	.take = take_pots,
	.put = put_pots,
	.create = create_pots,
	.find = find_pots,
	.find_names = find_pot_names,
	.find_coins = find_pot_coins,
	.list = list_pots,
};

const struct pot_repository fake_pot_repository = {.ops = &fake_pot_repository_ops};

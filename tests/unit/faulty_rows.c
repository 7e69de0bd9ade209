/* Functions with which tests read and change the rows of the faulty store themselves: through the
 * real repositories, past every fault. */
#include <stdio.h>
#include <stdlib.h>

#include "faulty_internal.h"

static void must_work(enum status status)
{
	if (status == STATUS_OK)
		return;
	fprintf(stderr, "the store under the faulty one failed: %s\n", status_code(status));
	abort();
}

static struct session *begin(struct faulty_store *faulty)
{
	must_work(faulty->file->session->ops->begin(faulty->file->session, TRANSACTION_WAIT));
	return faulty->file->session;
}

static void commit(struct faulty_store *faulty)
{
	must_work(faulty->file->session->ops->commit(faulty->file->session));
}

/* ---- counts and limits ------------------------------------------------------------------- */

void faulty_store_find(struct faulty_store *faulty, struct count_row *rows, size_t count)
{
	const struct count_repository *counts = faulty->file->store->repositories->counts;

	must_work(counts->ops->find(counts, faulty->file->session, rows, count));
}

struct count_row faulty_store_get(struct faulty_store *faulty, struct slice item_id)
{
	struct count_row row = {.item_id = item_id};

	faulty_store_find(faulty, &row, 1);
	return row;
}

void faulty_store_insert(struct faulty_store *faulty, const struct count_row *rows, size_t count)
{
	const struct count_repository *counts = faulty->file->store->repositories->counts;
	struct session *session = begin(faulty);

	for (size_t i = 0; i < count; i++) {
		const struct count_edit edit = {.item_id = rows[i].item_id,
			.kind = COUNT_INSERT,
			.value = rows[i].value,
			.bounds = rows[i].bounds};

		must_work(counts->ops->edit(counts, session, &edit, 1, faulty->now_us));
	}
	commit(faulty);
}

void faulty_store_add_count(struct faulty_store *faulty, const char *item_id, int64_t value)
{
	const struct count_row row = {.item_id = slice_of(item_id), .value = value};

	faulty_store_insert(faulty, &row, 1);
}

struct limit_row faulty_store_get_limit(struct faulty_store *faulty, struct slice user_id)
{
	const struct limit_repository *limits = faulty->file->store->repositories->limits;
	struct limit_row row = {.user_id = user_id};
	int64_t now_us;

	must_work(limits->ops->find(limits, faulty->file->session, &row, 1, &now_us));
	return row;
}

/* ---- pots -------------------------------------------------------------------------------- */

struct faulty_pot faulty_store_get_pot(struct faulty_store *faulty, int32_t pot_id)
{
	const struct pot_repository *pots = faulty->file->store->repositories->pots;
	struct pot_content content = {.pot_id = pot_id};
	struct row_page page = {.after_number = pot_id - 1, .limit = 1};
	struct pot_facts facts = {0};
	struct arena arena;

	arena_init(&arena, 512);
	must_work(pots->ops->list_facts(pots, faulty->file->session, &arena, &page, &facts));
	must_work(pots->ops->find_coins(pots, faulty->file->session, &content, 1));
	arena_release(&arena);
	return (struct faulty_pot){
		.exists = page.count == 1 && facts.pot_id == pot_id,
		.is_locked = facts.has_lock,
		.coins = content.coins,
	};
}

int32_t faulty_store_add_pot(struct faulty_store *faulty, const char *name, int32_t max_coins)
{
	const struct pot_repository *pots = faulty->file->store->repositories->pots;
	struct pot_row row = {.name = slice_of(name), .max_coins = max_coins};

	must_work(pots->ops->create(pots, begin(faulty), &row, 1));
	commit(faulty);
	assert(row.exists);
	return row.pot_id;
}

static struct pot_lock lock_of(const char *token, int64_t ttl_us)
{
	struct pot_lock lock = {.ttl_us = ttl_us};

	snprintf(lock.token, sizeof(lock.token), "%s", token);
	return lock;
}

void faulty_store_lock_pot(
	struct faulty_store *faulty, int32_t pot_id, const char *token, int64_t until_us)
{
	const struct pot_repository *pots = faulty->file->store->repositories->pots;
	struct pot_lock lock = lock_of(token, until_us - faulty->now_us);
	struct pot_content content = {.pot_id = pot_id};

	must_work(pots->ops->take(pots, begin(faulty), &lock, &content, 1));
	commit(faulty);
	assert(content.exists && !content.busy);
}

void faulty_store_unlock_pot(struct faulty_store *faulty, int32_t pot_id, const char *token)
{
	const struct pot_repository *pots = faulty->file->store->repositories->pots;
	struct pot_lock lock = lock_of(token, 0);
	const struct pot_change change = {.pot_id = pot_id};

	must_work(pots->ops->put(pots, begin(faulty), &lock, &change, 1));
	commit(faulty);
}

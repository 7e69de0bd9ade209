#include "fake_store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/listeners.h"

#define ROWS_MAX 64
#define KEYS_MAX 64

struct fake_key {
	struct key_record record;
	int64_t expires_us;
	int64_t lease_until_us;
};

/* What a transaction can change, so that rollback is a copy back. */
struct fake_data {
	struct count_row rows[ROWS_MAX];
	size_t row_count;
	struct limit_row limits[ROWS_MAX];
	size_t limit_count;
	struct fake_pot pots[ROWS_MAX]; /* of the ids 1, 2, … */
	size_t pot_count;
	struct fake_key keys[KEYS_MAX];
	size_t key_count;
};

struct fake_store {
	struct store base;
	struct fake_data *data;
	struct fake_data *before; /* at begin */
	struct arena arena;       /* ids and answers, for ever */
	struct slice held[ROWS_MAX];
	size_t held_count;
	const char *poison;
	enum lock_mode mode;
	bool in_transaction;
	bool is_committed; /* by what commits alone: commit() has nothing left to do */
	bool survives;
	int fail_at;
	enum status fail_with;
	bool has_failed;
	size_t commits;
	size_t takes;
	size_t kinds_written;
	int64_t now_us;
	struct listeners listeners;
};

struct fake_session {
	struct session base;
};

static struct fake_store *fake_of(struct session *session)
{
	return (struct fake_store *)session->store;
}

static void copy_data(struct fake_data *to, const struct fake_data *from)
{
	memcpy(to->rows, from->rows, from->row_count * sizeof(from->rows[0]));
	to->row_count = from->row_count;
	memcpy(to->limits, from->limits, from->limit_count * sizeof(from->limits[0]));
	to->limit_count = from->limit_count;
	memcpy(to->pots, from->pots, from->pot_count * sizeof(from->pots[0]));
	to->pot_count = from->pot_count;
	memcpy(to->keys, from->keys, from->key_count * sizeof(from->keys[0]));
	to->key_count = from->key_count;
}

static void rollback(struct session *session)
{
	struct fake_store *fake = fake_of(session);

	if (fake->in_transaction)
		copy_data(fake->data, fake->before);
	fake->in_transaction = false;
}

/* Every call of the port passes here. */
static enum status pass(struct session *session)
{
	struct fake_store *fake = fake_of(session);

	if (fake->fail_at == 0 || --fake->fail_at > 0)
		return STATUS_OK;
	fake->has_failed = true;
	if (fake->fail_with != STATUS_OUTCOME_UNKNOWN)
		rollback(session);
	return fake->fail_with;
}

static enum status begin(struct session *session, enum lock_mode mode)
{
	struct fake_store *fake = fake_of(session);
	enum status status = pass(session);

	assert(!fake->in_transaction);
	if (status == STATUS_OUTCOME_UNKNOWN)
		return STATUS_RERUN;
	if (status != STATUS_OK)
		return status;
	copy_data(fake->before, fake->data);
	fake->in_transaction = true;
	fake->is_committed = false;
	fake->mode = mode;
	return STATUS_OK;
}

static enum status commit(struct session *session)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake->is_committed ? STATUS_OK : pass(session);

	if (status == STATUS_OUTCOME_UNKNOWN && !fake->survives)
		rollback(session);
	if (status == STATUS_OK)
		fake->commits++;
	fake->in_transaction = false;
	fake->is_committed = false;
	return status;
}

/* A call inside a transaction; unknown outcomes exist at commit only. */
static enum status step(struct session *session)
{
	enum status status = pass(session);

	assert(status != STATUS_OK || fake_of(session)->in_transaction);
	if (status != STATUS_OUTCOME_UNKNOWN)
		return status;
	rollback(session);
	return STATUS_RERUN;
}

/* ---- keys -------------------------------------------------------------------------------- */

static struct fake_key *find_key(struct fake_store *fake, const struct key_record *wanted)
{
	for (size_t i = 0; i < fake->data->key_count; i++) {
		struct fake_key *key = &fake->data->keys[i];

		if (slice_equal(key->record.scope, wanted->scope) &&
			slice_equal(key->record.key, wanted->key))
			return key;
	}
	return NULL;
}

static enum status keys_find(
	struct session *session, struct arena *arena, struct key_record *records, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	(void)arena;
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		const struct fake_key *key = find_key(fake, &records[i]);

		records[i].found = key && key->expires_us > fake->now_us;
		if (!records[i].found)
			continue;
		records[i].same_request = memcmp(key->record.fingerprint, records[i].fingerprint,
						  FINGERPRINT_SIZE) == 0;
		records[i].owner = key->record.owner;
		records[i].lease_is_over = key->lease_until_us <= fake->now_us;
		records[i].note = key->record.note;
		records[i].answer = key->record.answer;
	}
	return status;
}

static struct key_record keep_record(struct fake_store *fake, const struct key_record *record)
{
	struct key_record kept = *record;

	kept.scope = arena_copy(&fake->arena, record->scope);
	kept.key = arena_copy(&fake->arena, record->key);
	kept.answer.content_type = arena_copy(&fake->arena, record->answer.content_type);
	kept.answer.location = arena_copy(&fake->arena, record->answer.location);
	kept.answer.body = arena_copy(&fake->arena, record->answer.body);
	kept.note = arena_copy(&fake->arena, record->note);
	kept.owner = arena_copy(&fake->arena, record->owner);
	return kept;
}

static enum status keys_put(
	struct session *session, const struct key_record *records, size_t count, int64_t ttl_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_key(fake, &records[i]);

		if (key && key->expires_us > fake->now_us) {
			rollback(session);
			return STATUS_RERUN;
		}
		if (!key) {
			assert(fake->data->key_count < KEYS_MAX);
			key = &fake->data->keys[fake->data->key_count++];
		}
		key->record = keep_record(fake, &records[i]);
		key->expires_us = fake->now_us + ttl_us;
		key->lease_until_us = fake->now_us + KEY_LEASE_US;
	}
	return status;
}

static enum status keys_claim(struct session *session, struct key_record *records, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_key(fake, &records[i]);

		records[i].was_ours =
			key && key->record.owner.len > 0 && key->lease_until_us <= fake->now_us;
		if (!records[i].was_ours)
			continue;
		key->record.owner = arena_copy(&fake->arena, records[i].owner);
		key->lease_until_us = fake->now_us + KEY_LEASE_US;
	}
	return status;
}

/* The key of this owner, NULL where it is not theirs any more. */
static struct fake_key *find_owned(struct fake_store *fake, struct key_record *record)
{
	struct fake_key *key = find_key(fake, record);

	record->was_ours = key && slice_equal(key->record.owner, record->owner);
	return record->was_ours ? key : NULL;
}

static enum status keys_finish(struct session *session, struct key_record *records, size_t count)
{
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_owned(fake_of(session), &records[i]);

		if (key)
			key->record.owner = (struct slice){0};
	}
	return status;
}

static enum status keys_forget(struct session *session, struct key_record *records, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_owned(fake, &records[i]);

		if (key)
			*key = fake->data->keys[--fake->data->key_count];
	}
	return status;
}

static enum status keys_release(struct session *session, struct key_record *records, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_owned(fake, &records[i]);

		if (key)
			key->lease_until_us = fake->now_us;
	}
	return status;
}

static enum status keys_sweep(struct session *session, size_t limit, size_t *deleted)
{
	(void)session;
	(void)limit;
	*deleted = 0;
	return STATUS_OK;
}

static void close_session(struct session *session)
{
	free(session);
}

static const struct session_ops session_ops = {
	.begin = begin,
	.commit = commit,
	.rollback = rollback,
	.keys_find = keys_find,
	.keys_put = keys_put,
	.keys_claim = keys_claim,
	.keys_finish = keys_finish,
	.keys_forget = keys_forget,
	.keys_release = keys_release,
	.keys_sweep = keys_sweep,
	.close = close_session,
};

/* ---- counts ------------------------------------------------------------------------------ */

static struct count_row *find_row(struct fake_store *fake, struct slice item_id)
{
	for (size_t i = 0; i < fake->data->row_count; i++) {
		if (slice_equal(fake->data->rows[i].item_id, item_id))
			return &fake->data->rows[i];
	}
	return NULL;
}

static bool is_held(const struct fake_store *fake, struct slice item_id)
{
	for (size_t i = 0; i < fake->held_count; i++) {
		if (slice_equal(fake->held[i], item_id))
			return true;
	}
	return false;
}

static enum status lock_busy(struct session *session)
{
	rollback(session);
	return STATUS_LOCK_BUSY;
}

static enum status apply_additions(
	struct session *session, struct count_addition *additions, size_t count)
{
	struct fake_store *fake = fake_of(session);

	for (size_t i = 0; i < count; i++) {
		struct count_addition *addition = &additions[i];
		struct count_row *row = find_row(fake, addition->item_id);

		assert(i == 0 || slice_compare(additions[i - 1].item_id, addition->item_id) < 0);
		if (row && is_held(fake, addition->item_id))
			return lock_busy(session);
		addition->applied =
			row && row->value >= addition->least && row->value <= addition->most;
		if (addition->applied)
			addition->value = row->value += addition->sum;
	}
	return STATUS_OK;
}

static enum status add(struct session *session, struct count_addition *additions, size_t count)
{
	enum status status = step(session);

	return status == STATUS_OK ? apply_additions(session, additions, count) : status;
}

/* A fault strikes as at commit. */
static enum status add_alone(
	struct session *session, struct count_addition *additions, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = pass(session);
	enum status added = STATUS_OK;

	if (status == STATUS_OK || (status == STATUS_OUTCOME_UNKNOWN && fake->survives))
		added = apply_additions(session, additions, count);
	if (status == STATUS_OUTCOME_UNKNOWN)
		fake->in_transaction = false;
	fake->is_committed = status == STATUS_OK && added == STATUS_OK;
	return status == STATUS_OK ? added : status;
}

static enum status lock(
	struct session *session, struct count_row *rows, size_t count, int64_t *now_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		const struct count_row *row = find_row(fake, rows[i].item_id);
		bool held = row && is_held(fake, row->item_id);

		assert(i == 0 || slice_compare(rows[i - 1].item_id, rows[i].item_id) < 0);
		if (held && fake->mode == LOCK_WAIT)
			return lock_busy(session);
		rows[i].busy = held;
		rows[i].exists = row && !held;
		if (row)
			rows[i].value = row->value;
	}
	*now_us = fake->now_us;
	return status;
}

static void delete_row(struct fake_store *fake, struct count_row *row)
{
	*row = fake->data->rows[--fake->data->row_count];
}

static enum status edit(
	struct session *session, const struct count_edit *edits, size_t count, int64_t now_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct count_row *row = find_row(fake, edits[i].item_id);

		if (fake->poison && slice_is(edits[i].item_id, fake->poison)) {
			rollback(session);
			return STATUS_POISON;
		}
		assert((edits[i].kind == COUNT_INSERT) == (row == NULL));
		if (edits[i].kind == COUNT_DELETE) {
			delete_row(fake, row);
			continue;
		}
		fake_store_set(fake, edits[i].item_id, edits[i].value);
		find_row(fake, edits[i].item_id)->updated_us = now_us;
	}
	return status;
}

static enum status find(struct session *session, struct count_row *rows, size_t count)
{
	enum status status = pass(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct slice item_id = rows[i].item_id;

		rows[i] = fake_store_get(fake_of(session), item_id);
		rows[i].item_id = item_id;
	}
	return status;
}

const struct count_repository fake_count_repository = {
	.add = add,
	.add_alone = add_alone,
	.lock = lock,
	.edit = edit,
	.find = find,
};

/* ---- limits ------------------------------------------------------------------------------ */

static struct limit_row *find_limit(struct fake_store *fake, struct slice user_id)
{
	for (size_t i = 0; i < fake->data->limit_count; i++) {
		if (slice_equal(fake->data->limits[i].user_id, user_id))
			return &fake->data->limits[i];
	}
	return NULL;
}

struct limit_row fake_store_get_limit(struct fake_store *fake, struct slice user_id)
{
	const struct limit_row *row = find_limit(fake, user_id);

	return row ? *row : (struct limit_row){.user_id = user_id};
}

static enum status lock_limits(
	struct session *session, struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct slice user_id = rows[i].user_id;
		bool held = is_held(fake, user_id);

		assert(i == 0 || slice_compare(rows[i - 1].user_id, user_id) < 0);
		if (held && fake->mode == LOCK_WAIT)
			return lock_busy(session);
		rows[i] = fake_store_get_limit(fake, user_id);
		rows[i].user_id = user_id;
		rows[i].busy = held;
	}
	*now_us = fake->now_us;
	return status;
}

static enum status put_limits(struct session *session, const struct limit_row *rows, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct limit_row *row = find_limit(fake, rows[i].user_id);

		assert(rows[i].exists == (row != NULL));
		if (!row) {
			assert(fake->data->limit_count < ROWS_MAX);
			row = &fake->data->limits[fake->data->limit_count++];
			row->user_id = arena_copy(&fake->arena, rows[i].user_id);
		}
		struct slice kept = row->user_id;

		*row = rows[i];
		row->user_id = kept;
		row->exists = true;
	}
	return status;
}

static enum status settle_limits(
	struct session *session, const struct limit_settlement *settlements, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct limit_row *row = find_limit(fake, settlements[i].user_id);

		if (!row || row->last_refresh_us != settlements[i].window_start_us)
			continue;
		row->current_count += settlements[i].confirmed;
		row->reserved_count -= settlements[i].given_back;
	}
	return status;
}

static enum status find_limits(
	struct session *session, struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = pass(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct slice user_id = rows[i].user_id;

		rows[i] = fake_store_get_limit(fake, user_id);
		rows[i].user_id = user_id;
	}
	*now_us = fake->now_us;
	return status;
}

const struct limit_repository fake_limit_repository = {
	.lock = lock_limits,
	.put = put_limits,
	.settle = settle_limits,
	.find = find_limits,
};

/* ---- pots -------------------------------------------------------------------------------- */

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

static enum status take_pots(struct session *session, const struct pot_lock *lock,
	struct pot_content *contents, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

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

static enum status put_pots(struct session *session, const struct pot_lock *lock,
	const struct pot_change *changes, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_pot *pot = find_pot(fake, changes[i].pot_id);

		if (strcmp(pot->token, lock->token) != 0) {
			rollback(session);
			return STATUS_RERUN;
		}
		write_kinds(fake, pot, &changes[i]);
		pot->token[0] = '\0';
	}
	return status;
}

static enum status create_pots(struct session *session, struct pot_row *rows, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		assert(i == 0 || slice_compare(rows[i - 1].name, rows[i].name) < 0);
		rows[i].exists = !find_pot_name(fake, rows[i].name);
		if (rows[i].exists)
			rows[i] = add_pot(fake, rows[i].name, rows[i].max_coins)->row;
	}
	return status;
}

static enum status find_pots(
	struct session *session, struct arena *arena, struct pot_row *rows, size_t count)
{
	enum status status = pass(session);

	(void)arena;
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		rows[i] = fake_store_get_pot(fake_of(session), rows[i].pot_id).row;
	return status;
}

static enum status find_pot_names(
	struct session *session, struct arena *arena, struct pot_row *rows, size_t count)
{
	enum status status = pass(session);

	(void)arena;
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		const struct fake_pot *pot = find_pot_name(fake_of(session), rows[i].name);

		rows[i] = pot ? pot->row : (struct pot_row){0};
	}
	return status;
}

static enum status find_pot_coins(
	struct session *session, struct pot_content *contents, size_t count)
{
	enum status status = pass(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_pot pot = fake_store_get_pot(fake_of(session), contents[i].pot_id);

		contents[i].exists = pot.row.exists;
		contents[i].coins = pot.coins;
	}
	return status;
}

static enum status list_pots(struct session *session, struct arena *arena, struct pot_page *pages,
	size_t count, int64_t *total)
{
	struct fake_store *fake = fake_of(session);
	enum status status = pass(session);

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

const struct pot_repository fake_pot_repository = {
	.take = take_pots,
	.put = put_pots,
	.create = create_pots,
	.find = find_pots,
	.find_names = find_pot_names,
	.find_coins = find_pot_coins,
	.list = list_pots,
};

/* ---- the store --------------------------------------------------------------------------- */

static struct session *open_session(struct store *store, enum session_kind kind)
{
	struct fake_session *session = qp_calloc(1, sizeof(*session));

	(void)kind;
	session->base.ops = &session_ops;
	session->base.store = store;
	return &session->base;
}

static bool is_up(struct store *store)
{
	(void)store;
	return true;
}

static void announce(struct store *store, const char *topic)
{
	listeners_call(&((struct fake_store *)store)->listeners, topic);
}

static void listen_to(
	struct store *store, const char *topic, void (*heard)(void *context), void *context)
{
	listeners_add(&((struct fake_store *)store)->listeners, topic, heard, context);
}

static void unlisten(struct store *store, void *context)
{
	listeners_remove(&((struct fake_store *)store)->listeners, context);
}

static const struct store_ops store_ops = {
	.open_session = open_session,
	.is_up = is_up,
	.announce = announce,
	.listen = listen_to,
	.unlisten = unlisten,
};

struct fake_store *fake_store_new(void)
{
	struct fake_store *fake = qp_calloc(1, sizeof(*fake));

	listeners_init(&fake->listeners);
	fake->base.ops = &store_ops;
	fake->base.name = "fake-store";
	fake->base.engine = "fake";
	fake->base.lanes_default = 1;
	fake->data = qp_calloc(1, sizeof(*fake->data));
	fake->before = qp_calloc(1, sizeof(*fake->before));
	fake->now_us = 1000000;
	arena_init(&fake->arena, 4096);
	return fake;
}

void fake_store_free(struct fake_store *fake)
{
	listeners_release(&fake->listeners);
	arena_release(&fake->arena);
	free(fake->data);
	free(fake->before);
	free(fake);
}

struct store *fake_store_base(struct fake_store *fake)
{
	return &fake->base;
}

struct count_row fake_store_get(struct fake_store *fake, struct slice item_id)
{
	const struct count_row *row = find_row(fake, item_id);

	return row ? *row : (struct count_row){.item_id = item_id};
}

void fake_store_set(struct fake_store *fake, struct slice item_id, int64_t value)
{
	struct count_row *row = find_row(fake, item_id);

	if (!row) {
		assert(fake->data->row_count < ROWS_MAX);
		row = &fake->data->rows[fake->data->row_count++];
		row->item_id = arena_copy(&fake->arena, item_id);
		row->exists = true;
		row->busy = false;
	}
	row->value = value;
}

void fake_store_hold(struct fake_store *fake, struct slice item_id, bool held)
{
	size_t kept = 0;

	for (size_t i = 0; i < fake->held_count; i++) {
		if (!slice_equal(fake->held[i], item_id))
			fake->held[kept++] = fake->held[i];
	}
	fake->held_count = kept;
	if (held)
		fake->held[fake->held_count++] = item_id;
}

void fake_store_fail_at(struct fake_store *fake, int n, enum status status)
{
	fake->fail_at = n;
	fake->fail_with = status;
	fake->has_failed = false;
}

void fake_store_commit_survives(struct fake_store *fake, bool survives)
{
	fake->survives = survives;
}

bool fake_store_has_failed(const struct fake_store *fake)
{
	return fake->has_failed;
}

void fake_store_poison(struct fake_store *fake, const char *item_id)
{
	fake->poison = item_id;
}

size_t fake_store_commits(const struct fake_store *fake)
{
	return fake->commits;
}

void fake_store_set_time(struct fake_store *fake, int64_t now_us)
{
	fake->now_us = now_us;
}

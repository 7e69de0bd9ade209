/* Limits of the gateway in the fake store. */
#include <assert.h>

#include "fake_store_data.h"

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

static enum status lock_limits(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct slice user_id = rows[i].user_id;
		bool held = fake_is_held(fake, user_id);

		assert(i == 0 || slice_compare(rows[i - 1].user_id, user_id) < 0);
		if (held && fake->mode == TRANSACTION_WAIT)
			return fake_lock_busy(session);
		rows[i] = fake_store_get_limit(fake, user_id);
		rows[i].user_id = user_id;
		rows[i].busy = held;
	}
	*now_us = fake->now_us;
	return status;
}

static enum status put_limits(const struct limit_repository *repository, struct session *session,
	const struct limit_row *rows, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

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

static enum status remove_limits(const struct limit_repository *repository, struct session *session,
	const struct slice *user_ids, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct limit_row *row = find_limit(fake, user_ids[i]);

		assert(row);
		*row = fake->data->limits[--fake->data->limit_count];
	}
	return status;
}

static enum status settle_limits(const struct limit_repository *repository, struct session *session,
	const struct limit_settlement *settlements, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct limit_row *row = find_limit(fake, settlements[i].user_id);

		if (!row || row->last_refresh_us != settlements[i].window_start_us)
			continue;
		row->current_count += settlements[i].confirmed;
		row->reserved_count -= settlements[i].given_back;
	}
	return status;
}

static enum status find_limits(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_pass(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct slice user_id = rows[i].user_id;

		rows[i] = fake_store_get_limit(fake, user_id);
		rows[i].user_id = user_id;
	}
	*now_us = fake->now_us;
	return status;
}

static const struct limit_repository_ops fake_limit_repository_ops = {
	.lock = lock_limits,
	.put = put_limits,
	.remove = remove_limits,
	.settle = settle_limits,
	.find = find_limits,
};

const struct limit_repository fake_limit_repository = {.ops = &fake_limit_repository_ops};

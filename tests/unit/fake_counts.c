/* Counts in the fake store. */
#include <assert.h>

#include "fake_store_data.h"

static struct count_row *find_row(struct fake_store *fake, struct slice item_id)
{
	for (size_t i = 0; i < fake->data->row_count; i++) {
		if (slice_equal(fake->data->rows[i].item_id, item_id))
			return &fake->data->rows[i];
	}
	return NULL;
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
		row->bounds = (struct count_bounds){0};
	}
	row->value = value;
}

void fake_store_bound(struct fake_store *fake, struct slice item_id, struct count_bounds bounds)
{
	find_row(fake, item_id)->bounds = bounds;
}

/* Whether the value may be moved by `step`: neither int64 nor the bounds are in the way. */
static bool may_reach(const struct count_row *row, int64_t step)
{
	const struct count_bounds *bounds = &row->bounds;
	int64_t value;

	return !__builtin_add_overflow(row->value, step, &value) &&
	       (!bounds->min.is_set || value >= bounds->min.value) &&
	       (!bounds->max.is_set || value <= bounds->max.value);
}

static enum status apply_additions(
	struct session *session, struct count_addition *additions, size_t count)
{
	struct fake_store *fake = fake_of(session);

	for (size_t i = 0; i < count; i++) {
		struct count_addition *addition = &additions[i];
		struct count_row *row = find_row(fake, addition->item_id);

		assert(i == 0 || slice_compare(additions[i - 1].item_id, addition->item_id) < 0);
		if (row && fake_is_held(fake, addition->item_id))
			return fake_lock_busy(session);
		addition->applied = row && may_reach(row, addition->lowest) &&
				    may_reach(row, addition->highest);
		if (addition->applied)
			addition->value = row->value += addition->sum;
	}
	return STATUS_OK;
}

/* A fault strikes as at commit. */
static enum status add_single(
	struct session *session, struct count_addition *additions, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_pass(session);
	enum status added = STATUS_OK;

	if (status == STATUS_OK || (status == STATUS_OUTCOME_UNKNOWN && fake->survives))
		added = apply_additions(session, additions, count);
	if (status == STATUS_OUTCOME_UNKNOWN)
		fake->in_transaction = false;
	fake->is_committed = status == STATUS_OK && added == STATUS_OK;
	return status == STATUS_OK ? added : status;
}

static enum status add(const struct count_repository *repository, struct session *session,
	struct count_addition *additions, size_t count)
{
	enum status status;

	if (fake_of(session)->mode == TRANSACTION_SINGLE)
		return add_single(session, additions, count);
	status = fake_step(session);
	return status == STATUS_OK ? apply_additions(session, additions, count) : status;
}

static enum status lock(const struct count_repository *repository, struct session *session,
	struct count_row *rows, size_t count, int64_t *now_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		const struct count_row *row = find_row(fake, rows[i].item_id);
		bool held = row && fake_is_held(fake, row->item_id);

		assert(i == 0 || slice_compare(rows[i - 1].item_id, rows[i].item_id) < 0);
		if (held && fake->mode == TRANSACTION_WAIT)
			return fake_lock_busy(session);
		rows[i].busy = held;
		rows[i].exists = row && !held;
		if (row) {
			rows[i].value = row->value;
			rows[i].bounds = row->bounds;
		}
	}
	*now_us = fake->now_us;
	return status;
}

static void delete_row(struct fake_store *fake, struct count_row *row)
{
	*row = fake->data->rows[--fake->data->row_count];
}

static enum status edit(const struct count_repository *repository, struct session *session,
	const struct count_edit *edits, size_t count, int64_t now_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct count_row *row = find_row(fake, edits[i].item_id);

		if (fake->poison && slice_is(edits[i].item_id, fake->poison)) {
			fake_rollback(session);
			return STATUS_POISON;
		}
		assert((edits[i].kind == COUNT_INSERT) == (row == NULL));
		if (edits[i].kind == COUNT_DELETE) {
			delete_row(fake, row);
			continue;
		}
		fake_store_set(fake, edits[i].item_id, edits[i].value);
		fake_store_bound(fake, edits[i].item_id, edits[i].bounds);
		find_row(fake, edits[i].item_id)->updated_us = now_us;
	}
	return status;
}

static enum status find(const struct count_repository *repository, struct session *session,
	struct count_row *rows, size_t count)
{
	enum status status = fake_pass(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct slice item_id = rows[i].item_id;

		rows[i] = fake_store_get(fake_of(session), item_id);
		rows[i].item_id = item_id;
	}
	return status;
}

static const struct count_repository_ops fake_count_repository_ops = {
	.add = add,
	.lock = lock,
	.edit = edit,
	.find = find,
};

const struct count_repository fake_count_repository = {.ops = &fake_count_repository_ops};

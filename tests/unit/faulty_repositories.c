/*
 * The repositories of the faulty store. Each verb first meets the planned fault and the rows that
 * others hold, and then calls the verb of the same name of the real repository.
 */
#include <stdlib.h>

#include "faulty_internal.h"

/* ---- counts ------------------------------------------------------------------------------ */

static const struct count_repository *counts_of(struct session *session)
{
	return faulty_repositories(session)->counts;
}

static enum status add_unless_held(
	struct session *session, struct count_addition *additions, size_t count)
{
	const struct count_repository *inner = counts_of(session);

	for (size_t i = 0; i < count; i++) {
		struct slice item_id = additions[i].item_id;

		assert(i == 0 || slice_compare(additions[i - 1].item_id, item_id) < 0);
		if (faulty_is_held(session, item_id))
			return faulty_refuse(session, STATUS_LOCK_BUSY);
	}
	return inner->ops->add(inner, faulty_inner(session), additions, count);
}

/* Adds and commits. A fault here works as one at COMMIT. */
static enum status add_and_commit(
	struct session *session, struct count_addition *additions, size_t count)
{
	enum status fault = faulty_pass(session);
	enum status status = add_unless_held(session, additions, count);

	if (status == STATUS_OK)
		status = faulty_end(session, fault);
	faulty_session_of(session)->is_committed = status == STATUS_OK;
	return status;
}

static enum status count_add(const struct count_repository *repository, struct session *session,
	struct count_addition *additions, size_t count)
{
	enum status status;

	if (faulty_session_of(session)->mode == TRANSACTION_SINGLE)
		return add_and_commit(session, additions, count);
	status = faulty_step(session);
	return status ? status : add_unless_held(session, additions, count);
}

static enum status count_lock(const struct count_repository *repository, struct session *session,
	struct count_row *rows, size_t count, int64_t *now_us)
{
	const struct count_repository *inner = counts_of(session);
	struct faulty_session *faulty = faulty_session_of(session);
	enum status status = faulty_step(session);

	if (status == STATUS_OK)
		status = inner->ops->lock(inner, faulty->inner, rows, count, now_us);
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		assert(i == 0 || slice_compare(rows[i - 1].item_id, rows[i].item_id) < 0);
		if (!faulty_is_held(session, rows[i].item_id))
			continue;
		if (faulty->mode == TRANSACTION_WAIT)
			return faulty_refuse(session, STATUS_LOCK_BUSY);
		rows[i].busy = true;
		rows[i].exists = false;
	}
	return status;
}

static enum status count_edit(const struct count_repository *repository, struct session *session,
	const struct count_edit *edits, size_t count, int64_t now_us)
{
	const struct count_repository *inner = counts_of(session);
	const char *poison = faulty_store_of(session)->poison;
	enum status status = faulty_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		if (poison && slice_is(edits[i].item_id, poison))
			return faulty_refuse(session, STATUS_POISON);
	}
	return status ? status
		      : inner->ops->edit(inner, faulty_inner(session), edits, count, now_us);
}

static enum status count_find(const struct count_repository *repository, struct session *session,
	struct count_row *rows, size_t count)
{
	const struct count_repository *inner = counts_of(session);
	enum status status = faulty_pass(session);

	return status ? status : inner->ops->find(inner, faulty_inner(session), rows, count);
}

static const struct count_repository_ops count_ops = {
	.add = count_add,
	.lock = count_lock,
	.edit = count_edit,
	.find = count_find,
};

const struct count_repository faulty_count_repository = {.ops = &count_ops};

/* ---- limits ------------------------------------------------------------------------------ */

static const struct limit_repository *limits_of(struct session *session)
{
	return faulty_repositories(session)->limits;
}

static enum status limit_lock(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	const struct limit_repository *inner = limits_of(session);
	struct faulty_session *faulty = faulty_session_of(session);
	enum status status = faulty_step(session);

	if (status == STATUS_OK)
		status = inner->ops->lock(inner, faulty->inner, rows, count, now_us);
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		assert(i == 0 || slice_compare(rows[i - 1].user_id, rows[i].user_id) < 0);
		if (!faulty_is_held(session, rows[i].user_id))
			continue;
		if (faulty->mode == TRANSACTION_WAIT)
			return faulty_refuse(session, STATUS_LOCK_BUSY);
		rows[i].busy = true;
	}
	return status;
}

/* Checks what the caller says about a row: whether it exists. SQLite would write it either way. */
static void check_exists(struct session *session, const struct limit_row *row)
{
	const struct limit_repository *inner = limits_of(session);
	struct limit_row stored = {.user_id = row->user_id};
	int64_t now_us;

	if (inner->ops->lock(inner, faulty_inner(session), &stored, 1, &now_us) != STATUS_OK)
		abort();
	assert(stored.exists == row->exists);
}

static enum status limit_put(const struct limit_repository *repository, struct session *session,
	const struct limit_row *rows, size_t count)
{
	const struct limit_repository *inner = limits_of(session);
	enum status status = faulty_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		check_exists(session, &rows[i]);
	return status ? status : inner->ops->put(inner, faulty_inner(session), rows, count);
}

static enum status limit_remove(const struct limit_repository *repository, struct session *session,
	const struct slice *user_ids, size_t count)
{
	const struct limit_repository *inner = limits_of(session);
	enum status status = faulty_step(session);

	return status ? status : inner->ops->remove(inner, faulty_inner(session), user_ids, count);
}

static enum status limit_settle(const struct limit_repository *repository, struct session *session,
	const struct limit_settlement *settlements, size_t count)
{
	const struct limit_repository *inner = limits_of(session);
	enum status status = faulty_step(session);

	return status ? status
		      : inner->ops->settle(inner, faulty_inner(session), settlements, count);
}

static enum status limit_find(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	const struct limit_repository *inner = limits_of(session);
	enum status status = faulty_pass(session);

	return status ? status
		      : inner->ops->find(inner, faulty_inner(session), rows, count, now_us);
}

static const struct limit_repository_ops limit_ops = {
	.lock = limit_lock,
	.put = limit_put,
	.remove = limit_remove,
	.settle = limit_settle,
	.find = limit_find,
};

const struct limit_repository faulty_limit_repository = {.ops = &limit_ops};

/* ---- messages of the gateway ------------------------------------------------------------- */

static enum status outbound_note(const struct outbound_repository *repository,
	struct session *session, const struct outbound_message *messages, size_t count)
{
	const struct outbound_repository *inner = faulty_repositories(session)->outbound;
	enum status status = faulty_step(session);

	return status ? status : inner->ops->note(inner, faulty_inner(session), messages, count);
}

static const struct outbound_repository_ops outbound_ops = {.note = outbound_note};

const struct outbound_repository faulty_outbound_repository = {.ops = &outbound_ops};

/* ---- pots -------------------------------------------------------------------------------- */

static const struct pot_repository *pots_of(struct session *session)
{
	return faulty_repositories(session)->pots;
}

static enum status pot_take(const struct pot_repository *repository, struct session *session,
	const struct pot_lock *lock, struct pot_content *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(session);
	enum status status = faulty_step(session);

	if (status == STATUS_OK)
		status = inner->ops->take(inner, faulty_inner(session), lock, pots, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		assert(i == 0 || pots[i - 1].pot_id < pots[i].pot_id);
		faulty_store_of(session)->takes += pots[i].exists;
	}
	return status;
}

static enum status pot_put(const struct pot_repository *repository, struct session *session,
	const struct pot_lock *lock, const struct pot_change *changes, size_t count)
{
	const struct pot_repository *inner = pots_of(session);
	enum status status = faulty_step(session);

	if (status == STATUS_OK)
		status = inner->ops->put(inner, faulty_inner(session), lock, changes, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		for (size_t kind = 0; kind < COIN_KINDS; kind++)
			faulty_store_of(session)->kinds_written += changes[i].is_changed[kind];
	}
	return status;
}

static enum status pot_create(const struct pot_repository *repository, struct session *session,
	struct pot_row *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(session);
	enum status status = faulty_step(session);

	for (size_t i = 1; i < count; i++)
		assert(slice_compare(pots[i - 1].name, pots[i].name) < 0);
	return status ? status : inner->ops->create(inner, faulty_inner(session), pots, count);
}

static enum status pot_find(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_row *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(session);
	enum status status = faulty_pass(session);

	return status ? status : inner->ops->find(inner, faulty_inner(session), arena, pots, count);
}

static enum status pot_find_names(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_row *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(session);
	enum status status = faulty_pass(session);

	return status ? status
		      : inner->ops->find_names(inner, faulty_inner(session), arena, pots, count);
}

static enum status pot_find_coins(const struct pot_repository *repository, struct session *session,
	struct pot_content *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(session);
	enum status status = faulty_pass(session);

	return status ? status : inner->ops->find_coins(inner, faulty_inner(session), pots, count);
}

static enum status pot_list(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_page *pages, size_t count, int64_t *total)
{
	const struct pot_repository *inner = pots_of(session);
	enum status status = faulty_pass(session);

	return status ? status
		      : inner->ops->list(inner, faulty_inner(session), arena, pages, count, total);
}

static const struct pot_repository_ops pot_ops = {
	.take = pot_take,
	.put = pot_put,
	.create = pot_create,
	.find = pot_find,
	.find_names = pot_find_names,
	.find_coins = pot_find_coins,
	.list = pot_list,
};

const struct pot_repository faulty_pot_repository = {.ops = &pot_ops};

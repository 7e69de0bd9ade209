/*
 * Every change writes its row, its sources, an audit line and, if the status changed, an event in
 * the outbox, all in one transaction. A relay publishes the event later, so no request fails
 * because a broker is unreachable.
 *
 * Invariant: the version of an entitlement grows by one with every change of its status, and each
 * version has exactly one event. A change that keeps the status keeps the version and increases the
 * step, which begins at 0 in each version. Each change has exactly one audit line. If several
 * commands of a batch change the same row or source, the row or source is written once, with its
 * final state.
 *
 * A batch reads only the sources that its commands name, the source MIGRATED for revokes, and the
 * number of sources of each row. For a new entitlement, which is the usual case of a grant, the
 * batch reads no sources.
 */
#include "services/entitlements/entitlement_batch.h"

#include <stdlib.h>

#include "base/uuid.h"
#include "events/entitlement_event.h"
#include "flow/groups.h"
#include "services/entitlements/entitlement_answers.h"

/* ---- command types ----------------------------------------------------------------------- */

const struct command_type entitlement_command_type = {"entitlement_command", true};

struct entitlement_command *entitlement_command_new(struct arena *arena)
{
	struct entitlement_command *command = arena_new(arena, struct entitlement_command);

	command->write.command.type = &entitlement_command_type;
	return command;
}

struct entitlement_command *entitlement_command_of(struct write *write)
{
	command_assert_type(&write->command, &entitlement_command_type);
	return (struct entitlement_command *)write;
}

/* The separator sorts before every character that an id may have, so that keys sort like the pairs
 * of user and unit. */
#define KEY_SEPARATOR '\x1f'

struct slice entitlement_lane_key(struct arena *arena, struct slice user_id, struct slice unit)
{
	struct buffer key = buffer_make(arena, user_id.len + unit.len + 1);

	buffer_add(&key, user_id);
	buffer_char(&key, KEY_SEPARATOR);
	buffer_add(&key, unit);
	return buffer_slice(&key);
}

/* ---- sources ----------------------------------------------------------------------------- */

/* One entitlement of a batch, with the group of commands on it. The commands run one after another
 * and change `row` and `sources`. */
struct fold {
	struct entitlement_row row;
	const struct write_group *group;
	struct entitlement_source *sources; /* named by the commands; sorted by kind and id */
	size_t source_count;
};

/* Returns the source that a command names, in its initial state. A revoke of all sources names no
 * source; for such a revoke, the kind of the result is empty. */
static struct entitlement_source source_named(const struct entitlement_command *command)
{
	struct entitlement_source source = {.user_id = command->user_id, .unit = command->unit};

	if (command->purchase_id.len > 0) {
		source.kind = slice_of(ENTITLEMENT_PURCHASE);
		source.id = command->purchase_id;
	} else if (command->is_grant) {
		source.kind = slice_of(ENTITLEMENT_REASON);
		source.id = command->reason;
	}
	return source;
}

/* Returns the source MIGRATED, which the revoke of any purchase may end. */
static struct entitlement_source source_migrated(const struct entitlement_command *command)
{
	return (struct entitlement_source){
		.user_id = command->user_id,
		.unit = command->unit,
		.kind = slice_of(ENTITLEMENT_MIGRATED),
		.id = slice_of(ENTITLEMENT_MIGRATED),
	};
}

static int compare_sources(const void *a, const void *b)
{
	const struct entitlement_source *left = a, *right = b;
	int order = slice_compare(left->kind, right->kind);

	return order != 0 ? order : slice_compare(left->id, right->id);
}

/* Sorts the sources and drops duplicates. */
static void sort_sources(struct fold *fold)
{
	struct entitlement_source *sources = fold->sources;
	size_t kept = 0;

	qsort(sources, fold->source_count, sizeof(*sources), compare_sources);
	for (size_t i = 0; i < fold->source_count; i++) {
		if (kept == 0 || compare_sources(&sources[kept - 1], &sources[i]) != 0)
			sources[kept++] = sources[i];
	}
	fold->source_count = kept;
}

/* Collects in `sources` the sources that the commands name, and MIGRATED for each revoke of a
 * purchase. `sources` has room for two sources per command. */
static void name_sources(struct fold *fold, struct entitlement_source *sources)
{
	fold->sources = sources;
	for (size_t i = 0; i < fold->group->count; i++) {
		const struct entitlement_command *command =
			entitlement_command_of(fold->group->writes[i]);
		struct entitlement_source source = source_named(command);

		if (source.kind.len == 0)
			continue;
		fold->sources[fold->source_count++] = source;
		if (!command->is_grant)
			fold->sources[fold->source_count++] = source_migrated(command);
	}
	sort_sources(fold);
}

static struct entitlement_source *source_of(
	const struct fold *fold, struct entitlement_source named)
{
	return bsearch(&named, fold->sources, fold->source_count, sizeof(named), compare_sources);
}

/* ---- changes ----------------------------------------------------------------------------- */

/* The changes that one transaction writes. */
struct changes {
	struct arena *arena;
	int64_t now_us;
	struct entitlement_row *rows; /* each row once, with its final state */
	size_t row_count;
	struct entitlement_source *sources; /* each source once, with its final state */
	size_t source_count;
	struct entitlement_audit *lines; /* one per change */
	size_t line_count;
	struct outbox_event *events; /* one per change of a status */
	size_t event_count;
};

static struct outbox_event make_event(const struct changes *changes,
	const struct entitlement_command *command, const struct entitlement_row *row)
{
	char *event_id = arena_alloc(changes->arena, UUID_SIZE);
	struct entitlement_event event = {
		.event_type = slice_of(row->is_active ? ENTITLEMENT_GRANTED : ENTITLEMENT_REVOKED),
		.occurred_us = changes->now_us,
		.user_id = row->user_id,
		.unit = row->unit,
		.source = command->reason,
		.source_id = command->purchase_id,
		.version = row->version,
	};

	uuid_of_time(changes->now_us, event_id);
	event.event_id = slice_of(event_id);
	return (struct outbox_event){
		.id = event.event_id,
		.type = event.event_type,
		.key = entitlement_aggregate_key(changes->arena, row->user_id, row->unit),
		.trace = command->traceparent,
		.payload = entitlement_event_pack(changes->arena, &event),
		.occurred_us = changes->now_us,
	};
}

static void record_change(struct changes *changes, const struct entitlement_command *command,
	const struct entitlement_row *row)
{
	struct outbox_event event = {0};

	if (row->step == 0) {
		event = make_event(changes, command, row);
		changes->events[changes->event_count++] = event;
	}
	changes->lines[changes->line_count++] = (struct entitlement_audit){
		.user_id = row->user_id,
		.unit = row->unit,
		.is_active = command->is_grant,
		.version = row->version,
		.step = row->step,
		.reason = command->reason,
		.purchase_id = command->purchase_id,
		.event_id = event.id,
		.at_us = changes->now_us,
	};
}

/* Applies the rules to one command. */
static enum status apply(const struct entitlement_command *command, struct fold *fold,
	struct entitlement_source *source, int64_t now_us)
{
	if (!source)
		return entitlement_revoke_all(
			&fold->row, fold->sources, fold->source_count, now_us);
	if (!command->is_grant)
		return entitlement_revoke(
			&fold->row, source, source_of(fold, source_migrated(command)), now_us);
	if (source->granted_us == 0)
		source->reason = command->reason;
	return entitlement_grant(&fold->row, source, now_us);
}

/* Runs one command. The earlier commands of the batch have already run. */
static enum status run_command(
	struct changes *changes, struct entitlement_command *command, struct fold *fold)
{
	struct arena *arena = command->write.command.arena;
	struct entitlement_source *source = source_of(fold, source_named(command));
	enum status status = apply(command, fold, source, changes->now_us);
	struct entitlement_refusal refusal = {
		.status = status,
		.is_grant = command->is_grant,
		.row = &fold->row,
		.source = source,
	};

	if (status != STATUS_OK) {
		write_answer(&command->write, entitlement_answer_refused(arena, &refusal));
		return status;
	}
	record_change(changes, command, &fold->row);
	write_answer(&command->write, entitlement_answer(arena, &fold->row));
	return STATUS_OK;
}

static void run_fold(struct changes *changes, struct fold *fold)
{
	bool changed = false;

	for (size_t i = 0; i < fold->group->count; i++) {
		struct entitlement_command *command =
			entitlement_command_of(fold->group->writes[i]);

		changed = run_command(changes, command, fold) == STATUS_OK || changed;
	}
	if (!changed)
		return;
	changes->rows[changes->row_count++] = fold->row;
	for (size_t i = 0; i < fold->source_count; i++) {
		if (fold->sources[i].granted_us > 0)
			changes->sources[changes->source_count++] = fold->sources[i];
	}
}

static enum status write_changes(const struct entitlements *entitlements, struct session *session,
	const struct changes *changes)
{
	const struct entitlement_repository *repository = entitlements->repository;
	const struct entitlement_changes put = {
		.rows = changes->rows,
		.row_count = changes->row_count,
		.sources = changes->sources,
		.source_count = changes->source_count,
		.lines = changes->lines,
		.line_count = changes->line_count,
	};
	enum status status;

	if (changes->line_count == 0)
		return STATUS_OK;
	status = repository->ops->put(repository, session, &put);
	if (status == STATUS_OK && changes->event_count > 0)
		status = entitlements->outbox->ops->put(
			entitlements->outbox, session, changes->events, changes->event_count);
	return status;
}

/* ---- deciding ---------------------------------------------------------------------------- */

/* The entitlements of a batch, sorted. */
struct folds {
	struct fold *all;
	size_t count;
};

static struct folds make_folds(const struct write_batch *batch)
{
	struct folds folds = {0};
	const struct write_group *groups = write_groups(batch, &folds.count);

	folds.all = arena_array(batch->arena, struct fold, folds.count);
	for (size_t i = 0; i < folds.count; i++) {
		const struct entitlement_command *first =
			entitlement_command_of(groups[i].writes[0]);

		folds.all[i].group = &groups[i];
		folds.all[i].row.user_id = first->user_id;
		folds.all[i].row.unit = first->unit;
	}
	return folds;
}

static enum status lock_rows(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct folds folds, int64_t *now_us)
{
	struct entitlement_row *rows = arena_array(arena, struct entitlement_row, folds.count);
	enum status status;

	for (size_t i = 0; i < folds.count; i++)
		rows[i] = folds.all[i].row;
	status = repository->ops->lock(repository, session, rows, folds.count, now_us);
	for (size_t i = 0; status == STATUS_OK && i < folds.count; i++)
		folds.all[i].row = rows[i];
	return status;
}

/* Collects in `sources` the named sources of every fold whose row.exists is equal to `exists`.
 * Returns the address after the last collected source. */
static struct entitlement_source *name_all(
	struct folds folds, bool exists, struct entitlement_source *sources)
{
	for (size_t i = 0; i < folds.count; i++) {
		struct fold *fold = &folds.all[i];

		if (fold->row.exists != exists)
			continue;
		name_sources(fold, sources);
		sources += fold->source_count;
	}
	return sources;
}

/* Fills `sources`, which has room for two sources per command, with the named sources of all folds:
 * first those of rows that exist, then those of new rows. Looks up the sources of the rows that
 * exist. */
static enum status find_sources(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct folds folds,
	struct entitlement_source *sources)
{
	struct entitlement_row *rows = arena_array(arena, struct entitlement_row, folds.count);
	struct entitlement_source *end = name_all(folds, true, sources);
	size_t count = 0;
	enum status status = STATUS_OK;

	name_all(folds, false, end);
	for (size_t i = 0; i < folds.count; i++) {
		if (folds.all[i].row.exists)
			rows[count++] = folds.all[i].row;
	}
	if (count > 0)
		status = repository->ops->find_sources(
			repository, session, rows, count, sources, (size_t)(end - sources));
	for (size_t i = folds.count; status == STATUS_OK && i-- > 0;) {
		if (folds.all[i].row.exists)
			folds.all[i].row = rows[--count];
	}
	return status;
}

enum status entitlement_batch_decide(const struct entitlements *entitlements,
	struct session *session, const struct write_batch *batch)
{
	struct folds folds = make_folds(batch);
	struct changes changes = {.arena = batch->arena};
	struct entitlement_source *sources =
		arena_array(batch->arena, struct entitlement_source, 2 * batch->count);
	enum status status =
		lock_rows(entitlements->repository, session, batch->arena, folds, &changes.now_us);

	if (status == STATUS_OK)
		status = find_sources(
			entitlements->repository, session, batch->arena, folds, sources);
	if (status != STATUS_OK)
		return status;
	changes.rows = arena_array(batch->arena, struct entitlement_row, folds.count);
	changes.sources = arena_array(batch->arena, struct entitlement_source, 2 * batch->count);
	changes.lines = arena_array(batch->arena, struct entitlement_audit, batch->count);
	changes.events = arena_array(batch->arena, struct outbox_event, batch->count);
	for (size_t i = 0; i < folds.count; i++) {
		if (folds.all[i].row.busy)
			write_group_busy(folds.all[i].group);
		else
			run_fold(&changes, &folds.all[i]);
	}
	return write_changes(entitlements, session, &changes);
}

/*
 * All waiting lookups of entitlements become at most three queries: one for all pages, one for all
 * single entitlements with a few of their sources, and one for all single entitlements with all
 * their sources. Each lookup of the audit has its own query.
 */
#include "services/entitlements/entitlement_lookup.h"

#include "base/text.h"
#include "inbound/input.h"
#include "services/entitlements/entitlement_answers.h"
#include "services/entitlements/entitlement_rules.h"

/* ---- entitlements ------------------------------------------------------------------------ */

const struct command_type entitlement_lookup_type = {"entitlement_lookup", false};

struct entitlement_lookup *entitlement_lookup_new(struct arena *arena)
{
	struct entitlement_lookup *lookup = arena_new(arena, struct entitlement_lookup);

	lookup->read.command.type = &entitlement_lookup_type;
	return lookup;
}

struct entitlement_lookup *entitlement_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &entitlement_lookup_type);
	return (struct entitlement_lookup *)read;
}

static struct slice next_page(
	struct arena *arena, const struct entitlement_lookup *lookup, struct slice last_unit)
{
	struct buffer target = buffer_make(arena, lookup->path.len + 3 * last_unit.len + 64);

	buffer_add(&target, lookup->path);
	buffer_format(&target, "?limit=%zu", lookup->limit);
	if (lookup->status.len > 0) {
		buffer_text(&target, "&status=");
		buffer_add(&target, lookup->status);
	}
	buffer_text(&target, "&after=");
	buffer_percent(&target, last_unit);
	return buffer_slice(&target);
}

static struct answer answer_page(
	const struct entitlement_lookup *lookup, const struct entitlement_query *query)
{
	struct arena *arena = lookup->read.command.arena;
	size_t shown = query->row_count < lookup->limit ? query->row_count : lookup->limit;
	struct answer answer = entitlement_answer_list(arena, lookup->user_id, query->rows, shown);

	if (query->row_count > shown)
		answer_link_next(
			&answer, arena, next_page(arena, lookup, query->rows[shown - 1].unit));
	return answer;
}

static enum status look_up_pages(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct entitlement_lookup **lookups,
	size_t count)
{
	struct entitlement_query *queries = arena_array(arena, struct entitlement_query, count);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		queries[i].user_id = lookups[i]->user_id;
		queries[i].status = lookups[i]->status;
		queries[i].after = lookups[i]->after;
		queries[i].limit =
			/* one extra row shows whether there is a next page */
			lookups[i]->limit + 1;
	}
	status = repository->ops->list(repository, session, arena, queries, count);
	for (size_t i = 0; status == STATUS_OK && i < count; i++)
		lookups[i]->read.command.answer = answer_page(lookups[i], &queries[i]);
	return status;
}

static void answer_look(struct entitlement_lookup *lookup, const struct entitlement_look *look)
{
	struct command *command = &lookup->read.command;

	lookup->has_more = !lookup->wants_all && look->source_count > ENTITLEMENT_SOURCES_FEW;
	command->answer =
		lookup->has_more ? answer_empty() : entitlement_answer_look(command->arena, look);
}

static enum status look_up_single(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct entitlement_lookup **lookups,
	size_t count, size_t source_max)
{
	struct entitlement_look *looks = arena_array(arena, struct entitlement_look, count);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		looks[i].row.user_id = lookups[i]->user_id;
		looks[i].row.unit = lookups[i]->unit;
	}
	status = repository->ops->look(repository, session, arena, looks, count, source_max);
	for (size_t i = 0; status == STATUS_OK && i < count; i++)
		answer_look(lookups[i], &looks[i]);
	return status;
}

enum status entitlement_look_up(const struct entitlements *entitlements, struct session *session,
	const struct read_batch *batch)
{
	const struct entitlement_repository *repository = entitlements->repository;
	struct entitlement_lookup **pages =
		arena_array(batch->arena, struct entitlement_lookup *, batch->count);
	struct entitlement_lookup **few =
		arena_array(batch->arena, struct entitlement_lookup *, batch->count);
	struct entitlement_lookup **all =
		arena_array(batch->arena, struct entitlement_lookup *, batch->count);
	size_t page_count = 0, few_count = 0, all_count = 0;
	enum status status = STATUS_OK;

	for (size_t i = 0; i < batch->count; i++) {
		struct entitlement_lookup *lookup = entitlement_lookup_of(batch->reads[i]);

		if (lookup->unit.len == 0)
			pages[page_count++] = lookup;
		else if (lookup->wants_all)
			all[all_count++] = lookup;
		else
			few[few_count++] = lookup;
	}
	if (page_count > 0)
		status = look_up_pages(repository, session, batch->arena, pages, page_count);
	if (status == STATUS_OK && few_count > 0)
		/* one extra source shows whether there are more than ENTITLEMENT_SOURCES_FEW */
		status = look_up_single(repository, session, batch->arena, few, few_count,
			ENTITLEMENT_SOURCES_FEW + 1);
	if (status == STATUS_OK && all_count > 0)
		status = look_up_single(
			repository, session, batch->arena, all, all_count, ENTITLEMENT_SOURCES_MAX);
	return status;
}

/* ---- the audit --------------------------------------------------------------------------- */

static const struct command_type audit_lookup_type = {"audit_lookup", false};

/* Writes a cursor such as 1767856200123456.12.0.item1. */
static void write_cursor(struct buffer *target, const struct entitlement_audit *line)
{
	buffer_format(target, "%lld.%lld.%lld.", (long long)line->at_us, (long long)line->version,
		(long long)line->step);
	buffer_percent(target, line->unit);
}

bool audit_cursor_read(struct slice cursor, struct audit_page *page)
{
	struct entitlement_audit line = {0};
	bool good = text_to_int(slice_cut(&cursor, '.'), &line.at_us) &&
		    text_to_int(slice_cut(&cursor, '.'), &line.version) &&
		    text_to_int(slice_cut(&cursor, '.'), &line.step);

	if (!good || cursor.len > ID_BYTES_MAX || line.at_us > AUDIT_NEWEST_US ||
		line.at_us < -AUDIT_NEWEST_US)
		return false;
	line.unit = cursor;
	page->before = line;
	return true;
}

static struct answer answer_audit(const struct audit_lookup *lookup, size_t limit)
{
	struct arena *arena = lookup->read.command.arena;
	const struct audit_page *page = &lookup->page;
	size_t shown = page->count < limit ? page->count : limit;
	struct answer answer = entitlement_answer_audit(arena, page->user_id, page->lines, shown);
	struct buffer target;

	if (page->count == shown)
		return answer;
	target = buffer_make(arena, lookup->path.len + 3 * ID_BYTES_MAX + 96);
	buffer_add(&target, lookup->path);
	buffer_format(&target, "?limit=%zu&before=", limit);
	write_cursor(&target, &page->lines[shown - 1]);
	answer_link_next(&answer, arena, buffer_slice(&target));
	return answer;
}

static enum status look_up_audit(struct read *read, struct session *session, struct arena *arena)
{
	struct audit_lookup *lookup = (struct audit_lookup *)read;
	const struct entitlement_repository *repository = lookup->repository;
	size_t limit = lookup->page.limit;
	struct audit_lookup asked = *lookup;
	enum status status;

	command_assert_type(&read->command, &audit_lookup_type);
	/* one extra line shows whether there is a next page */
	asked.page.limit = limit + 1;
	asked.page.lines = arena_array(arena, struct entitlement_audit, limit + 1);
	status = repository->ops->read_audit(repository, session, arena, &asked.page);
	if (status == STATUS_OK)
		read->command.answer = answer_audit(&asked, limit);
	return status;
}

struct audit_lookup *audit_lookup_new(struct arena *arena)
{
	struct audit_lookup *lookup = arena_new(arena, struct audit_lookup);

	lookup->read.command.type = &audit_lookup_type;
	lookup->read.look_up = look_up_audit;
	lookup->page.before.at_us = AUDIT_NEWEST_US;
	return lookup;
}

/* Runs the statements of an eraser. Each call of erase() changes rows of one place only. */
#include "adapters/store/sqlite/sqlite_eraser.h"

#include "adapters/store/sqlite/sqlite_dead_letters.h"

static const struct sqlite_eraser *eraser_of(const struct eraser *eraser)
{
	assert(eraser->ops == &sqlite_eraser_ops);
	return (const struct sqlite_eraser *)eraser;
}

static struct sqlite_value value_of(
	const struct sqlite_session *session, const struct erase_values *values, char letter)
{
	switch (letter) {
	case 'u':
		return sqlite_text(values->user_id);
	case 'p':
		return sqlite_text(values->pseudonym);
	case 's':
		return sqlite_text(values->sender);
	case 'n':
		return sqlite_text(values->nobody);
	case 'f':
		return sqlite_blob(values->field);
	case 't':
		return sqlite_int(sqlite_now_us(session));
	default:
		assert(letter == 'l');
		return sqlite_int(values->limit);
	}
}

/* Fills in the parameter values of a statement, and returns their number. */
static size_t fill_values(const struct sqlite_session *session,
	const struct sqlite_erase_statement *statement, const struct erase_values *from,
	struct sqlite_value values[ERASE_VALUES_MAX])
{
	size_t count = strlen(statement->values);

	assert(count <= ERASE_VALUES_MAX);
	for (size_t i = 0; i < count; i++)
		values[i] = value_of(session, from, statement->values[i]);
	return count;
}

static enum status count_place(struct sqlite_session *session,
	const struct sqlite_erase_statement *statement, const struct erase_values *from,
	int64_t *rows)
{
	struct sqlite_value values[ERASE_VALUES_MAX];
	size_t count = fill_values(session, statement, from, values);
	struct sqlite_query query = sqlite_query_open(session, statement->sql);

	sqlite_query_start(&query, values, count);
	if (sqlite_query_next(&query))
		*rows = sqlite_query_int(&query, 0);
	return sqlite_query_close(&query);
}

static enum status count_rows(
	const struct eraser *base, struct session *session, struct erasure *erasure)
{
	struct sqlite_session *sqlite = sqlite_session_of(session);
	const struct sqlite_eraser *eraser = eraser_of(base);
	struct erase_values values;
	struct arena arena;
	enum status status = STATUS_OK;

	arena_init(&arena, 1024);
	values = erase_values_of(&arena, erasure);
	for (size_t i = 0; i < base->place_count && status == STATUS_OK; i++)
		status = count_place(sqlite, &eraser->places[i].count, &values, &erasure->rows[i]);
	arena_release(&arena);
	return status;
}

static enum status empty_place(struct sqlite_session *session,
	const struct sqlite_erase_place *place, const struct erase_values *from, int64_t *rows)
{
	enum status status = STATUS_OK;

	for (size_t i = 0; i < ERASE_STATEMENTS_MAX && place->erase[i].sql; i++) {
		struct sqlite_value values[ERASE_VALUES_MAX];
		size_t count = fill_values(session, &place->erase[i], from, values);
		struct sqlite_query query = sqlite_query_open(session, place->erase[i].sql);

		*rows = sqlite_query_change(&query, values, count);
		status = sqlite_query_close(&query);
		if (status != STATUS_OK)
			return status;
	}
	return status;
}

/* Erases rows of the first place that still has rows, and records the step in operator_actions. */
static enum status erase_some(const struct sqlite_eraser *eraser, struct sqlite_session *session,
	struct arena *arena, struct erasure *erasure)
{
	const struct erase_values values = erase_values_of(arena, erasure);

	for (size_t i = 0; i < eraser->base.place_count; i++) {
		enum status status =
			empty_place(session, &eraser->places[i], &values, &erasure->rows[i]);

		if (status != STATUS_OK)
			return status;
		if (erasure->rows[i] > 0)
			return sqlite_record_action(session,
				&(struct operator_record){
					.who = erasure->who,
					.action = slice_of("erase"),
					.target = erasure->pseudonym,
					.detail = erase_detail(arena, &eraser->base, erasure),
				});
	}
	return STATUS_OK;
}

static enum status erase(
	const struct eraser *base, struct session *session, struct erasure *erasure)
{
	struct arena arena;
	enum status status;

	arena_init(&arena, 1024);
	status = erase_some(eraser_of(base), sqlite_session_of(session), &arena, erasure);
	arena_release(&arena);
	return status;
}

const struct eraser_ops sqlite_eraser_ops = {.count = count_rows, .erase = erase};

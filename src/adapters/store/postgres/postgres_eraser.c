/*
 * Runs the statements of an eraser. Each call of erase() changes a limited number of rows of one
 * place, so that a call is quick however many rows the person has. Most statements find rows by
 * ctid. If another session updates a row while such a statement runs, the row's ctid changes, and
 * the statement misses the row. A statement also changes nothing if another session deletes all the
 * rows that it has chosen. So no rows changed does not mean that no rows are left: the place is
 * counted before the next place is erased, because that may make its rows impossible to find.
 */
#include "adapters/store/postgres/postgres_eraser.h"

#include <assert.h>

#include "adapters/store/postgres/postgres_dead_letters.h"

static const struct pg_eraser *eraser_of(const struct eraser *eraser)
{
	assert(eraser->ops == &pg_eraser_ops);
	return (const struct pg_eraser *)eraser;
}

static struct pg_param param_of(
	struct pg_session *session, const struct erase_values *values, char letter)
{
	switch (letter) {
	case 'u':
		return pg_param_text(values->user_id);
	case 'p':
		return pg_param_text(values->pseudonym);
	case 's':
		return pg_param_text(values->sender);
	case 'n':
		return pg_param_text(values->nobody);
	case 'f':
		return pg_param_text(values->field);
	default:
		assert(letter == 'l');
		return pg_param_int8(session, values->limit);
	}
}

static void queue(struct pg_session *session, const struct pg_erase_statement *statement,
	const struct erase_values *values)
{
	struct pg_param params[ERASE_VALUES_MAX];
	size_t count = strlen(statement->values);

	assert(count <= ERASE_VALUES_MAX);
	for (size_t i = 0; i < count; i++)
		params[i] = param_of(session, values, statement->values[i]);
	pg_queue(session, &statement->statement, params, count);
}

static enum status count_place(struct pg_session *session, const struct pg_erase_place *place,
	const struct erasure *erasure, int64_t *rows)
{
	struct erase_values values = erase_values_of(&session->arena, erasure);
	enum status status;

	queue(session, &place->count, &values);
	status = pg_flush(session);
	if (status == STATUS_OK)
		*rows = pg_int8(session->results[0], 0, 0);
	return status;
}

static enum status count_rows(
	const struct eraser *base, struct session *session, struct erasure *erasure)
{
	const struct pg_eraser *eraser = eraser_of(base);
	enum status status = STATUS_OK;

	for (size_t i = 0; i < base->place_count && status == STATUS_OK; i++)
		status = count_place(
			pg_session_of(session), &eraser->places[i], erasure, &erasure->rows[i]);
	return status;
}

/* Erases rows of one place. Sets `rows` to the number of erased rows. */
static enum status empty_place(struct pg_session *session, const struct pg_erase_place *place,
	struct erasure *erasure, int64_t *rows)
{
	struct erase_values values = erase_values_of(&session->arena, erasure);
	size_t count = 0;
	enum status status;

	while (count < ERASE_STATEMENTS_MAX && place->erase[count].statement.name)
		queue(session, &place->erase[count++], &values);
	status = pg_flush(session);
	if (status == STATUS_OK)
		*rows = PQntuples(session->results[count - 1]);
	return status;
}

/* Returns RERUN if the place still has rows, which the statements of this transaction have missed.
 * The count sees every change that those statements have waited for. */
static enum status check_empty(
	struct session *base, const struct pg_erase_place *place, const struct erasure *erasure)
{
	int64_t left = 0;
	enum status status = count_place(pg_session_of(base), place, erasure, &left);

	if (status != STATUS_OK || left == 0)
		return status;
	base->ops->rollback(base);
	return STATUS_RERUN;
}

static enum status erase(
	const struct eraser *base, struct session *session, struct erasure *erasure)
{
	struct pg_session *pg = pg_session_of(session);
	const struct pg_eraser *eraser = eraser_of(base);

	for (size_t i = 0; i < base->place_count; i++) {
		enum status status =
			empty_place(pg, &eraser->places[i], erasure, &erasure->rows[i]);

		if (status != STATUS_OK)
			return status;
		if (erasure->rows[i] > 0)
			return pg_record_action(
				pg, &(struct operator_record){
					    .who = erasure->who,
					    .action = slice_of("erase"),
					    .target = erasure->pseudonym,
					    .detail = erase_detail(&pg->arena, base, erasure),
				    });
		status = check_empty(session, &eraser->places[i], erasure);
		if (status != STATUS_OK)
			return status;
	}
	return STATUS_OK;
}

const struct eraser_ops pg_eraser_ops = {.count = count_rows, .erase = erase};

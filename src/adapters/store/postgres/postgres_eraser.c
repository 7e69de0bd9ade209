/*
 * Runs the statements of an eraser. Each call of erase() changes a limited number of rows of one
 * place, so that a call is quick however many rows the person has. Most statements find rows by
 * ctid. If another session updates a row while such a statement runs, the row's ctid changes, and
 * the statement may miss the row; the next call finds it.
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

static enum status count_rows(
	const struct eraser *base, struct session *session, struct erasure *erasure)
{
	struct pg_session *pg = pg_session_of(session);
	const struct pg_eraser *eraser = eraser_of(base);

	for (size_t i = 0; i < base->place_count; i++) {
		struct erase_values values = erase_values_of(&pg->arena, erasure);
		enum status status;

		queue(pg, &eraser->places[i].count, &values);
		status = pg_flush(pg);
		if (status != STATUS_OK)
			return status;
		erasure->rows[i] = pg_int8(pg->results[0], 0, 0);
	}
	return STATUS_OK;
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
	}
	return STATUS_OK;
}

const struct eraser_ops pg_eraser_ops = {.count = count_rows, .erase = erase};

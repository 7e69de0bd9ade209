/*
 * What the views of dead letters (ports/dead_letter_repository.h) share in PostgreSQL, and the
 * record of what people did.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DEAD_LETTERS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DEAD_LETTERS_H

#include "adapters/store/postgres/postgres_claims.h"
#include "ports/dead_letter_repository.h"

/*
 * `list` takes kind, id of the last one seen, and how many; `find` takes kind and id. Both return
 * the fields of struct dead_letter in this order: id, kind, type, key, position, error,
 * attempt_count, created, payload. `row` takes kind, id and the new status, PENDING or DISCARDED,
 * of the row that was given up. Where letters are kept in a table of their own, `letter` takes the
 * same and says that the letter is resolved. The last of them returns a row if there was one to
 * change.
 */
struct pg_dead_view {
	const char *target;                   /* what operator_actions calls it */
	const struct pg_claim_table *reopens; /* where a replay makes a row PENDING */
	struct pg_statement list;
	struct pg_statement find;
	struct pg_statement row;
	struct pg_statement letter; /* may be empty */
	struct pg_statement depth;
};

/* The functions of ports/dead_letter_repository.h on a view, but for put. */
enum status pg_dead_list(struct session *session, const struct pg_dead_view *view,
	struct arena *arena, const struct dead_letter_page *page, struct dead_letter *letters,
	size_t *count);
enum status pg_dead_find(struct session *session, const struct pg_dead_view *view,
	struct arena *arena, struct slice kind, struct slice id, struct dead_letter *letter,
	bool *found);
enum status pg_dead_resolve(struct session *session, const struct pg_dead_view *view,
	struct slice kind, struct slice id, enum dead_letter_action action, struct slice why,
	bool *found);
enum status pg_dead_depth(struct session *session, const struct pg_dead_view *view, int64_t *count);

#define PG_DEAD_FUNCTIONS(name, view)                                                              \
	static enum status name##_list(struct session *session, struct arena *arena,               \
		const struct dead_letter_page *page, struct dead_letter *letters, size_t *count)   \
	{                                                                                          \
		return pg_dead_list(session, view, arena, page, letters, count);                   \
	}                                                                                          \
	static enum status name##_find(struct session *session, struct arena *arena,               \
		struct slice kind, struct slice id, struct dead_letter *letter, bool *found)       \
	{                                                                                          \
		return pg_dead_find(session, view, arena, kind, id, letter, found);                \
	}                                                                                          \
	static enum status name##_resolve(struct session *session, struct slice kind,              \
		struct slice id, enum dead_letter_action action, struct slice why, bool *found)    \
	{                                                                                          \
		return pg_dead_resolve(session, view, kind, id, action, why, found);               \
	}                                                                                          \
	static enum status name##_depth(struct session *session, int64_t *count)                   \
	{                                                                                          \
		return pg_dead_depth(session, view, count);                                        \
	}

/* `put_function` may be NULL. */
#define PG_DEAD_LETTERS(name, put_function)                                                        \
	{                                                                                          \
		.put = put_function, .list = name##_list, .find = name##_find,                     \
		.resolve = name##_resolve, .depth = name##_depth,                                  \
	}

/* In a transaction. */
QP_MUST_CHECK enum status pg_record_action(
	struct session *session, const char *action, struct slice target, struct slice detail);

#endif

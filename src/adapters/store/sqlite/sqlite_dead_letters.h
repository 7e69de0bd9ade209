/*
 * What the views of dead letters (ports/dead_letter_repository.h) share in SQLite, and the record
 * of what people did.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_DEAD_LETTERS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_DEAD_LETTERS_H

#include "adapters/store/sqlite/sqlite_internal.h"
#include "ports/dead_letter_repository.h"

/*
 * `list` takes kind, id of the last one seen, and how many; `find` takes kind and id. Both return
 * the fields of struct dead_letter in this order: id, kind, type, key, position, error,
 * attempt_count, created, payload. `row` takes kind, id and the new status, PENDING or DISCARDED,
 * of the row that was given up. Where letters are kept in a table of their own, `letter` takes the
 * same and the time, and says that the letter is resolved. The last of them changes a row if there
 * was one to change.
 */
struct sqlite_dead_view {
	const char *target; /* what operator_actions calls it */
	const char *list;
	const char *find;
	const char *row;
	const char *letter; /* may be NULL */
	const char *depth;
};

/* The functions of ports/dead_letter_repository.h on a view, but for put. */
enum status sqlite_dead_list(struct session *session, const struct sqlite_dead_view *view,
	struct arena *arena, const struct dead_letter_page *page, struct dead_letter *letters,
	size_t *count);
enum status sqlite_dead_find(struct session *session, const struct sqlite_dead_view *view,
	struct arena *arena, struct slice kind, struct slice id, struct dead_letter *letter,
	bool *found);
enum status sqlite_dead_resolve(struct session *session, const struct sqlite_dead_view *view,
	struct slice kind, struct slice id, enum dead_letter_action action, struct slice why,
	bool *found);
enum status sqlite_dead_depth(
	struct session *session, const struct sqlite_dead_view *view, int64_t *count);

#define SQLITE_DEAD_FUNCTIONS(name, view)                                                          \
	static enum status name##_list(struct session *session, struct arena *arena,               \
		const struct dead_letter_page *page, struct dead_letter *letters, size_t *count)   \
	{                                                                                          \
		return sqlite_dead_list(session, view, arena, page, letters, count);               \
	}                                                                                          \
	static enum status name##_find(struct session *session, struct arena *arena,               \
		struct slice kind, struct slice id, struct dead_letter *letter, bool *found)       \
	{                                                                                          \
		return sqlite_dead_find(session, view, arena, kind, id, letter, found);            \
	}                                                                                          \
	static enum status name##_resolve(struct session *session, struct slice kind,              \
		struct slice id, enum dead_letter_action action, struct slice why, bool *found)    \
	{                                                                                          \
		return sqlite_dead_resolve(session, view, kind, id, action, why, found);           \
	}                                                                                          \
	static enum status name##_depth(struct session *session, int64_t *count)                   \
	{                                                                                          \
		return sqlite_dead_depth(session, view, count);                                    \
	}

/* `put_function` may be NULL. */
#define SQLITE_DEAD_LETTERS(name, put_function)                                                    \
	{                                                                                          \
		.put = put_function, .list = name##_list, .find = name##_find,                     \
		.resolve = name##_resolve, .depth = name##_depth,                                  \
	}

/* In a transaction. */
QP_MUST_CHECK enum status sqlite_record_action(struct sqlite_session *session, const char *action,
	struct slice target, struct slice detail);

#endif

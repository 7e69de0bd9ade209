/*
 * Dead letters: outbox events and notifications that failed too many times, and messages that could
 * not be read (poison). An operator looks at them and replays or discards them; each action is
 * recorded in operator_actions in the same transaction. Functions block and return a status that
 * ports/store.h lists.
 */
#ifndef QUIPU_PORTS_DEAD_LETTER_REPOSITORY_H
#define QUIPU_PORTS_DEAD_LETTER_REPOSITORY_H

#include "ports/store.h"

struct dead_letter {
	struct slice id;       /* a UUID; an outbox event or notification keeps its own id */
	struct slice kind;     /* "outbox", "notification", "poison" */
	struct slice type;     /* event_type; empty if unknown */
	struct slice key;      /* aggregate_key; empty if unknown */
	struct slice position; /* the message's identity on the bus; only for poison */
	struct slice error;
	struct slice payload;
	int32_t attempt_count;
	int64_t created_us; /* when it was given up; for outbox events, when they were created */
};

struct dead_letter_page {
	struct slice kind;
	struct slice after; /* id of the last letter seen; empty to start at the first */
	size_t limit;
};

/* The kind and id that identify a letter. */
struct dead_letter_name {
	struct slice kind;
	struct slice id;
};

enum dead_letter_action { DEAD_LETTER_REPLAY, DEAD_LETTER_DISCARD };

/* What an operator decided about a letter. */
struct dead_letter_resolution {
	struct dead_letter_name name;
	enum dead_letter_action action;
	struct slice why; /* recorded with the action; may be empty */
	struct slice who; /* recorded with the action: the id of the operator's key, or empty */
};

struct dead_letter_repository;

struct dead_letter_repository_ops {
	/* In a transaction: stores letters. Ignores a second letter for the same notification or
	 * the same position while the first is unresolved. */
	QP_MUST_CHECK enum status (*put)(const struct dead_letter_repository *repository,
		struct session *session, const struct dead_letter *letters, size_t count);

	/* Outside a transaction: reads a page of unresolved letters, by id, without payloads. */
	QP_MUST_CHECK enum status (*list)(const struct dead_letter_repository *repository,
		struct session *session, struct arena *arena, const struct dead_letter_page *page,
		struct dead_letter *letters, size_t *count);

	/* Inside or outside a transaction: looks up an unresolved letter, with its payload. Leaves
	 * `letter` untouched if there is none. */
	QP_MUST_CHECK enum status (*find)(const struct dead_letter_repository *repository,
		struct session *session, struct arena *arena, const struct dead_letter_name *name,
		struct dead_letter *letter, bool *found);

	/*
	 * In a transaction. REPLAY makes an outbox event or notification PENDING again; poison is
	 * only marked as replayed, because only the service knows what to do with its payload.
	 * DISCARD drops the letter. If there is no unresolved letter of this name, sets `found` to
	 * false and changes nothing.
	 */
	QP_MUST_CHECK enum status (*resolve)(const struct dead_letter_repository *repository,
		struct session *session, const struct dead_letter_resolution *resolution,
		bool *found);

	/* Outside a transaction: counts the unresolved letters of `kind`, or of all kinds if `kind`
	 * is empty. */
	QP_MUST_CHECK enum status (*depth)(const struct dead_letter_repository *repository,
		struct session *session, struct slice kind, int64_t *count);
};

/* The first member of each adapter's own repository. */
struct dead_letter_repository {
	const struct dead_letter_repository_ops *ops;
};

#endif

/*
 * A dead letter is an outbox event, a notification or an outbound message that failed too many
 * times, or a message from the bus that could not be read (poison). An operator replays or discards
 * dead letters; each of these actions is recorded in operator_actions in the same transaction.
 * Functions block and return a status that ports/store.h lists.
 */
#ifndef QUIPU_PORTS_DEAD_LETTER_REPOSITORY_H
#define QUIPU_PORTS_DEAD_LETTER_REPOSITORY_H

#include "ports/store.h"

struct dead_letter {
	struct slice id;       /* a UUID: the id of the row that failed, or a new id for poison */
	struct slice kind;     /* "outbox", "notification", "sms", "poison" */
	struct slice type;     /* the column event_type; empty if unknown */
	struct slice key;      /* the column aggregate_key; empty if unknown */
	struct slice position; /* the message's identity on the bus; only for poison */
	struct slice error;
	struct slice payload;
	int32_t attempt_count;
	int64_t created_us; /* when the letter was stored; for an outbox event, when it occurred */
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
	struct slice who; /* recorded with the action: the id of the operator's API key, or empty */
};

struct dead_letter_repository;

struct dead_letter_repository_ops {
	/* Stores letters. Ignores a letter if an unresolved letter has the same id. Ignores a
	 * letter of the kind poison if any letter has the same position. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*put)(const struct dead_letter_repository *repository,
		struct session *session, const struct dead_letter *letters, size_t count);

	/* Reads a page of unresolved letters, sorted by id, without payloads. Must be called
	 * outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct dead_letter_repository *repository,
		struct session *session, struct arena *arena, const struct dead_letter_page *page,
		struct dead_letter *letters, size_t *count);

	/* Looks up an unresolved letter, with its payload. If there is no such letter, sets `found`
	 * to false and leaves `letter` untouched. May be called inside or outside a transaction. */
	QP_MUST_CHECK enum status (*find)(const struct dead_letter_repository *repository,
		struct session *session, struct arena *arena, const struct dead_letter_name *name,
		struct dead_letter *letter, bool *found);

	/*
	 * Resolves a letter. REPLAY makes an event, notification or outbound message PENDING again.
	 * A letter of the kind poison is merely marked as replayed, because only the service knows
	 * what to do with its payload. DISCARD drops the letter. If there is no unresolved letter
	 * of this name, or if the row that REPLAY would make PENDING was swept, sets `found` to
	 * false and changes nothing. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*resolve)(const struct dead_letter_repository *repository,
		struct session *session, const struct dead_letter_resolution *resolution,
		bool *found);

	/* Counts the unresolved letters of `kind`, or of all kinds if `kind` is empty. Must be
	 * called outside a transaction. */
	QP_MUST_CHECK enum status (*depth)(const struct dead_letter_repository *repository,
		struct session *session, struct slice kind, int64_t *count);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct dead_letter_repository {
	const struct dead_letter_repository_ops *ops;
};

#endif

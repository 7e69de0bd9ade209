/*
 * The operator's routes for dead letters: events, notifications and messages that a service could
 * not process or deliver and no longer retries. Operators can list them, look at one, replay or
 * discard one, and publish events of an outbox again. The commands `quipu dlq` and `quipu outbox`
 * are clients of these routes.
 *
 * Each kind of dead letter is registered with the lanes of its service, so an operator's action is
 * a write like any other: it may have an Idempotency-Key and is answered after COMMIT.
 */
#ifndef QUIPU_ADMIN_DEAD_LETTERS_H
#define QUIPU_ADMIN_DEAD_LETTERS_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/dead_letter_repository.h"
#include "ports/outbox_repository.h"

#define DEAD_LETTER_KINDS_MAX 8

struct dead_letter_kind {
	const char *name;        /* the kind's name in the routes: "dialog-outbox" */
	const char *letter_kind; /* the kind's name in the repository: "outbox" */
	const struct dead_letter_repository *dead;
	const struct outbox_repository *outbox; /* NULL if the kind is not an outbox */
	struct lane_set *lanes;                 /* the lanes of the service; not owned */

	/*
	 * Applies the payload again, in the transaction of a replay. If the payload still cannot be
	 * read, changes nothing and sets `is_read` to false. If another session resolves the letter
	 * meanwhile, the transaction is rolled back. Returns a status that ports/store.h lists. If
	 * take_again is NULL, the repository alone carries out the replay.
	 */
	enum status (*take_again)(void *context, struct session *session, struct arena *arena,
		struct slice payload, bool *is_read);
	void *context;

	/* Appends the payload as members of a JSON object, without the braces. If the payload
	 * cannot be read, appends nothing and returns false. */
	bool (*describe)(struct arena *arena, struct slice payload, struct buffer *members);
};

struct dead_letter_kinds {
	struct dead_letter_kind items[DEAD_LETTER_KINDS_MAX];
	size_t count;
};

/* Adds the routes. `kinds` must outlive the router. */
void dead_letters_add_routes(struct dead_letter_kinds *kinds, struct router *router);

/* The function `describe` for kinds whose payload is a JSON object. */
bool dead_letter_describe_json(struct arena *arena, struct slice payload, struct buffer *members);

/* Registers a copy of `kind`. Called at start, before the first request. */
void dead_letters_add_kind(struct dead_letter_kinds *kinds, const struct dead_letter_kind *kind);

#endif

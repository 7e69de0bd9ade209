/*
 * What operators do about what was given up: look at dead letters, replay or discard them, send
 * published events again. The commands `quipu dlq` and `quipu outbox` speak to these routes. All
 * roles.
 *
 * Whoever keeps dead letters has a desk here, one for each kind; a desk works through the lanes of
 * the service that it belongs to.
 */
#ifndef QUIPU_ADMIN_DEAD_LETTERS_H
#define QUIPU_ADMIN_DEAD_LETTERS_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/dead_letter_repository.h"
#include "ports/outbox_repository.h"

#define DEAD_LETTER_KINDS_MAX 8

struct dead_letter_kind {
	const char *name;        /* "dialog-outbox": in its routes */
	const char *letter_kind; /* "outbox": of its letters, in the repository */
	const struct dead_letter_repository *dead;
	const struct outbox_repository *outbox; /* NULL: it is none */
	struct lane_set *lanes;

	/*
	 * Optional: in the transaction of a replay, does what the letter's payload asks for.
	 * `is_read` false: it still cannot be read, and nothing was done. NULL: the repository does
	 * all that is needed.
	 */
	enum status (*take_again)(void *context, struct session *session, struct arena *arena,
		struct slice payload, bool *is_read);
	void *context;

	/* The payload as members of a JSON object. false: it cannot be read. */
	bool (*describe)(struct arena *arena, struct slice payload, struct buffer *members);
};

struct dead_letter_kinds {
	struct dead_letter_kind items[DEAD_LETTER_KINDS_MAX];
	size_t count;
};

/* Adds the routes. `kinds` outlives the router. */
void dead_letters_add_routes(struct dead_letter_kinds *kinds, struct router *router);

/* At start, before requests come. */
void dead_letters_add_kind(struct dead_letter_kinds *kinds, const struct dead_letter_kind *kind);

#endif

/*
 * The server side of `quipu verify`: reads the rows of a service page by page and reports every row
 * that violates the rules of the service. Such a violation is called a difference. All services
 * share the routes, the cursors and the form of a difference, which are in this module. A service
 * supplies a struct verifier, whose parts are the tables to check, one after another.
 *
 * Verification runs while requests are served, in the read lane of the service and outside write
 * transactions, so a write may commit between two reads of a part. Therefore a part may report a
 * difference only if a single snapshot of the rows proves the difference, or if a write between the
 * reads cannot have caused the difference. The verifier of counters is an exception: it also
 * reports differences that disappear once all events have arrived. A page reads about `limit` rows
 * through an index.
 */
#ifndef QUIPU_ADMIN_VERIFY_H
#define QUIPU_ADMIN_VERIFY_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/store.h"

#define VERIFIERS_MAX 8

/* How far the clocks of two processes, or of a database and its replacement, may be apart. */
#define VERIFY_SKEW_US (5 * 60 * 1000000LL)

struct verify_page {
	struct arena *arena;  /* memory for one attempt to read the page */
	struct row_page rows; /* which rows to read */

	/* The part's look() sets the next three members, usually with verify_finish…() and
	 * verify_differ…(). */
	size_t checked;            /* how many rows were read */
	struct buffer position;    /* the key of the last row; empty if there are no more rows */
	struct buffer differences; /* as JSON objects */
};

struct verify_part {
	const char *name; /* the part's name in cursors: "outbox" */

	/* Fills the page. Returns a status that ports/store.h lists. Called on the reader's thread;
	 * blocks. */
	enum status (*look)(const void *context, struct session *session, struct verify_page *page);
};

struct verifier {
	const char *name; /* the name in the route and on the command line: "counts" */
	/* Each answer has a member "checked". If this name is not NULL, the answer also has a
	 * member of this name with the same value. */
	const char *counted_as;
	const struct verify_part *parts;
	size_t part_count;
	const void *context;
	/* points to the service's pointer to its lanes, because the lanes start later */
	struct lane_set *const *lanes;
};

struct verifiers {
	const struct verifier *all[VERIFIERS_MAX];
	size_t count;
};

/* Adds a verifier, which must outlive the router. Called at start, before verify_add_routes(). */
void verify_add(struct verifiers *verifiers, const struct verifier *verifier);

/* Adds GET /operator/verify and /operator/verify/{service}. `verifiers` must outlive the router. */
void verify_add_routes(struct verifiers *verifiers, struct router *router);

struct verify_request {
	const struct verifier *verifier;
	struct slice after; /* the cursor that ended the previous page; empty for the first page */
	size_t limit;
};

/*
 * Appends one page to `body`, in the form of the route's answer. Returns BAD_REQUEST if `after` is
 * not a cursor, otherwise a status that ports/store.h lists; on failure `body` is unchanged.
 * Blocks.
 */
QP_MUST_CHECK enum status verify_look(const struct verify_request *request, struct session *session,
	struct arena *arena, struct buffer *body);

/* ---- for the look() function of a part ---- */

/*
 * Reports a difference in the row `id`. `what` is a word by which programs recognize the kind of
 * difference; once released, the word never changes. `format` writes a sentence for people, which
 * begins with the name of the row.
 */
void verify_differ(struct verify_page *page, struct slice id, const char *what, const char *format,
	...) QP_PRINTF(4, 5);

/* Like verify_differ(), but takes the whole sentence, and further JSON members for the difference,
 * such as ",\"unread\":3". */
void verify_differ_with(struct verify_page *page, struct slice id, const char *what,
	struct slice members, struct slice sentence);

/* Reports "in-the-future" if `time_us`, the value of `column`, is ahead of the store's time by more
 * than VERIFY_SKEW_US. */
void verify_time(struct verify_page *page, struct slice id, const char *column, int64_t time_us);

/*
 * Finish a page after all rows of page->rows were checked. The arguments are the key of the last
 * row: one or two texts, and one or two numbers if the key has any. If there may be more rows, this
 * key becomes the cursor.
 */
void verify_finish(struct verify_page *page, struct slice first, struct slice second);
void verify_finish_number(
	struct verify_page *page, struct slice first, struct slice second, int64_t number);
void verify_finish_numbers(struct verify_page *page, struct slice first, struct slice second,
	int64_t number, int64_t minor);

#endif

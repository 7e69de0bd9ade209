/*
 * What `quipu verify` asks of a service: its rows, page by page, and of each whatever contradicts
 * the service's own rules. Here is what all services share: the routes, the cursor, the words. A
 * service brings a struct verifier, whose parts are the tables that it looks at, one after the
 * other.
 *
 * It runs beside the traffic, in the service's read lane, outside write transactions. So a part
 * claims only what one snapshot of its rows proves, or what stays true whatever is written after
 * the first of its looks; and a page reads about `limit` rows, found by an index.
 */
#ifndef QUIPU_ADMIN_VERIFY_H
#define QUIPU_ADMIN_VERIFY_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/store.h"

#define VERIFIERS_MAX 8

/* Clocks of processes and of databases that take over from each other may differ by so much. */
#define VERIFY_SKEW_US (5 * 60 * 1000000LL)

struct verify_page {
	struct arena *arena;  /* for this try only */
	struct row_page rows; /* what to look at; verify_finish() tells how far it was looked */

	size_t checked;            /* rows that were looked at */
	struct buffer position;    /* of the last of them, empty: there are no more */
	struct buffer differences; /* JSON objects */
};

struct verify_part {
	const char *name; /* "outbox": in cursors */

	/* Fills the page, or returns what the session returned. On the reader's thread. */
	enum status (*look)(const void *context, struct session *session, struct verify_page *page);
};

struct verifier {
	const char *name;       /* "counts": in the route and for the command */
	const char *counted_as; /* a second name of the member `checked`, NULL: none */
	const struct verify_part *parts;
	size_t part_count;
	const void *context;
	struct lane_set *const *lanes; /* where the service has its lanes once it has started */
};

struct verifiers {
	const struct verifier *all[VERIFIERS_MAX];
	size_t count;
};

/* Adds one, before the routes. `verifier` outlives the router. Main thread, at start. */
void verify_add(struct verifiers *verifiers, const struct verifier *verifier);

/* Adds GET /operator/verify and /operator/verify/{service}. `verifiers` outlives the router. */
void verify_add_routes(struct verifiers *verifiers, struct router *router);

/* A page of `verifier` as its route answers it, into the read's arena: for look() alone, and for
 * tests. `after` is the cursor of the page before. BAD_REQUEST: it is none. */
struct verify_request {
	const struct verifier *verifier;
	struct slice after;
	size_t limit;
};

QP_MUST_CHECK enum status verify_look(const struct verify_request *request, struct session *session,
	struct arena *arena, struct buffer *body);

/* ---- for parts ---- */

/*
 * Notes a difference: `what` is a word for programs that never changes, the sentence is for people
 * and begins with the thing that differs.
 */
void verify_differ(struct verify_page *page, struct slice id, const char *what, const char *format,
	...) QP_PRINTF(4, 5);

/* The same with further members of the difference, as JSON: ",\"unread\":3". */
void verify_differ_with(struct verify_page *page, struct slice id, const char *what,
	struct slice members, struct slice sentence);

/* Notes "in-the-future" where `time_us`, of the column of that name, is ahead of the store's time.
 */
void verify_time(struct verify_page *page, struct slice id, const char *column, int64_t time_us);

/*
 * Ends a part's page: all of page->rows was looked at, and the key of the last row, where there may
 * be more behind it, is this: texts, and a number where the key has one.
 */
void verify_finish(struct verify_page *page, struct slice first, struct slice second);
void verify_finish_number(
	struct verify_page *page, struct slice first, struct slice second, int64_t number);

#endif

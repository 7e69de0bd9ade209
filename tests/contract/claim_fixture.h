/*
 * A table whose rows are claimed, for tests of what ports/claim_repository.h promises, and what
 * such tests do often.
 */
#ifndef QUIPU_CONTRACT_CLAIM_FIXTURE_H
#define QUIPU_CONTRACT_CLAIM_FIXTURE_H

#include "engine.h"

#define SECOND_US 1000000LL
#define MINUTE_US (60 * SECOND_US)
#define LEASE_US (30 * SECOND_US)
#define CLAIMS_MAX 200

/* A table of claims and its words. */
struct subject {
	const char *table;
	const char *id;
	const char *busy;
	const char *done;
	const char *done_at;
	const char *type; /* of every row */
	const struct claim_repository *(*claims)(const struct engine *engine);
	/* In a transaction: new rows, with these ids, made at `time_us` and so on. */
	enum status (*put)(struct engine *engine, struct session *session, const struct slice *ids,
		size_t count, int64_t time_us);
	const char *keep_sql; /* for PostgreSQL: makes CLAIMS_KEPT rows that are done */
	bool is_of_dialogs;   /* an outbox: that of dialogs */
	bool is_outbox;       /* keeps what was given up for its operator */
};

struct fixture {
	struct engine *engine;
	const struct subject *subject;
	const struct claim_repository *claims;
	struct claim claim[CLAIMS_MAX];
	size_t count;
};

#define CLAIMS_KEPT 20000

extern const struct subject claims_of_outbox;
extern const struct subject claims_of_dialog_outbox;
extern const struct subject claims_of_notifications;
extern const struct subject claims_of_outbound;

/* cmocka's: *state is a struct subject before, and a struct fixture after. */
int claim_fixture_setup(void **state);
int claim_fixture_teardown(void **state);

#define ON(subject, test)                                                                          \
	cmocka_unit_test_prestate_setup_teardown(                                                  \
		test, claim_fixture_setup, claim_fixture_teardown, (void *)(subject))

enum status claim_fixture_outbox_put(struct engine *engine, struct session *session,
	const struct slice *ids, size_t count, int64_t time_us);
int64_t claim_fixture_now_us(struct fixture *fixture);

/* Puts rows with the ids of "name-0", "name-1", … */
void claim_fixture_put_many(struct fixture *fixture, const char *name, size_t count);

/* Puts one row, and returns its id. */
struct slice claim_fixture_put_one(struct fixture *fixture);
enum status claim_fixture_claim_by(struct fixture *fixture, struct session *session,
	const char *owner, int64_t lease_us, size_t max);
size_t claim_fixture_claim(struct fixture *fixture, const char *owner, int64_t lease_us);

/* Ends all that fixture->claim holds. */
void claim_fixture_end(struct fixture *fixture, const char *owner);

/* Claims the one row that is there and ends it. */
void claim_fixture_claim_and_end(struct fixture *fixture, enum claim_end how);

/* Whether the row with this id meets a condition of SQL. */
bool claim_fixture_row_is(struct fixture *fixture, struct slice id, const char *condition);
bool claim_fixture_status_is(struct fixture *fixture, struct slice id, const char *status);
bool claim_fixture_is_done_now(struct fixture *fixture, struct slice id);
struct claim_stats claim_fixture_stats_of(struct fixture *fixture);

#endif

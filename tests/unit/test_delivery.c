/*
 * How long a delivery waits for its notifier. The store and the notifier are scripted by the test;
 * one row is due, and the notifier has one slot, whose notice gets no result.
 */
#include "check.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "flow/delivery.h"
#include "waiting.h"

static struct scripted {
	struct store store;
	struct session session;
	struct claim_repository claims;
	struct dead_letter_repository dead;
	struct notifier notifier;
	bool is_claimed;
	atomic_bool woken;
	atomic_int waits;      /* calls of wait() while the notice was on its way */
	int64_t least_wait_ns; /* the shortest of them */
} scripted;

/* ---- the store --------------------------------------------------------------------------- */

static enum status begin(struct session *session, enum transaction_mode mode)
{
	(void)session;
	(void)mode;
	return STATUS_OK;
}

static enum status commit(struct session *session)
{
	(void)session;
	return STATUS_OK;
}

static void close_session(struct session *session)
{
	(void)session;
}

static const struct session_ops session_ops = {
	.begin = begin, .commit = commit, .close = close_session};

static struct session *open_session(struct store *store, enum session_kind kind)
{
	(void)store;
	(void)kind;
	return &scripted.session;
}

static void listen(
	struct store *store, const char *announcement, void (*heard)(void *context), void *context)
{
	(void)store;
	(void)announcement;
	(void)heard;
	(void)context;
}

static void unlisten(struct store *store, void *context)
{
	(void)store;
	(void)context;
}

static const struct store_ops store_ops = {
	.open_session = open_session, .listen = listen, .unlisten = unlisten};

static enum status claim(const struct claim_repository *repository, struct session *session,
	struct arena *arena, const struct claim_terms *terms, struct claim *claims, size_t *count)
{
	(void)repository;
	(void)session;
	(void)arena;
	assert_int_equal(terms->max, 1);
	claims[0] = (struct claim){.id = slice_of("the row")};
	*count = !scripted.is_claimed;
	scripted.is_claimed = true;
	return STATUS_OK;
}

static enum status end(const struct claim_repository *repository, struct session *session,
	struct slice owner, struct claim *claims, size_t count)
{
	(void)repository;
	(void)session;
	(void)owner;
	for (size_t i = 0; i < count; i++)
		claims[i].was_ours = true;
	return STATUS_OK;
}

static enum status count_claims(const struct claim_repository *repository, struct session *session,
	struct claim_stats *stats)
{
	(void)repository;
	(void)session;
	*stats = (struct claim_stats){0};
	return STATUS_OK;
}

static const struct claim_repository_ops claim_ops = {
	.claim = claim, .end = end, .count = count_claims};

static enum status depth(const struct dead_letter_repository *repository, struct session *session,
	struct slice kind, int64_t *depth)
{
	(void)repository;
	(void)session;
	(void)kind;
	*depth = 0;
	return STATUS_OK;
}

static const struct dead_letter_repository_ops dead_ops = {.depth = depth};

/* ---- the notifier ------------------------------------------------------------------------ */

static void send_notice(struct notifier *notifier, const struct notice *notice)
{
	(void)notifier;
	(void)notice;
}

/* Returns early, as the port allows after wake(), so that the test need not wait. */
static size_t wait_results(
	struct notifier *notifier, struct notice_result *results, size_t max, int64_t until_ns)
{
	int64_t wait_ns = until_ns - clock_steady_ns(&clock_system);

	(void)notifier;
	(void)results;
	(void)max;
	if (scripted.is_claimed) {
		if (atomic_fetch_add(&scripted.waits, 1) == 0 || wait_ns < scripted.least_wait_ns)
			scripted.least_wait_ns = wait_ns;
	}
	wait_a_moment();
	return 0;
}

static void wake(struct notifier *notifier)
{
	(void)notifier;
}

static const struct notifier_ops notifier_ops = {
	.send = send_notice, .wait = wait_results, .wake = wake};

static const char *write_body(struct arena *arena, const struct claim *claim, struct slice *body)
{
	(void)arena;
	(void)claim;
	*body = slice_of("{}");
	return NULL;
}

/* ---- tests ------------------------------------------------------------------------------- */

/* The time to look for more rows comes at once, and more rows have been announced; neither is a
 * reason to run in circles. */
static void while_all_slots_are_busy_a_delivery_waits_for_a_result(void **state)
{
	const struct delivery_config config = {
		.name = "test",
		.store = &scripted.store,
		.claims = &scripted.claims,
		.dead = &scripted.dead,
		.letter_kind = "test",
		.announcement = "rows",
		.notifier = &scripted.notifier,
		.poll_us = 0,
		.lease_us = 60 * NS_PER_S / NS_PER_US,
		.attempts_max = 10,
		.write_body = write_body,
	};
	struct delivery *delivery;

	(void)state;
	scripted = (struct scripted){
		.store.ops = &store_ops,
		.session = {.ops = &session_ops, .store = &scripted.store},
		.claims.ops = &claim_ops,
		.dead.ops = &dead_ops,
		.notifier = {.ops = &notifier_ops, .slots = 1},
	};
	delivery = delivery_start(&config);
	WAIT_UNTIL(atomic_load(&scripted.waits) >= 10);
	delivery_stop(delivery);
	assert_true(scripted.least_wait_ns > NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(while_all_slots_are_busy_a_delivery_waits_for_a_result),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

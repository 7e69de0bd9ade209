/* What a send or take that failed has cost its user, in the row and in the cache, and whether its
 * answer says so. */
#include "base/log.h"
#include "gateway_fixture.h"

static void test_r11_6_a_failed_publish_costs_a_slot_on_the_cache_path(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	gateway_fixture_open(&fixture, true);
	gateway_fixture_configure(&fixture);
	fake_bus.fate = BUS_NOT_PERSISTED;
	assert_int_equal(gateway_fixture_send_many(&fixture, 2, 503), 2);
	assert_int_equal(gateway_fixture_row_of(&fixture).current_count, 0);
	fake_bus.fate = BUS_CONFIRMED;
	assert_int_equal(gateway_fixture_send_many(&fixture, 6, 200), 3);
	gateway_fixture_close(&fixture);
}

static bool has_words(struct slice text, const char *words)
{
	return memmem(text.data, text.len, words, strlen(words)) != NULL;
}

/* Sends one message and checks its 503: the status, and whether it says that a slot is used up. */
static void check_unsent(
	struct gateway_fixture *fixture, const char *key, enum status status, bool costs_a_slot)
{
	struct fixture_send *send = gateway_fixture_submit(fixture, GATEWAY_SEND, "u", key);
	const struct problem *problem;

	gateway_fixture_step(fixture);
	problem = send->command.write.command.answer.problem;
	assert_int_equal(problem->status, status);
	assert_int_equal(
		has_words(problem->detail, "uses up one message of this window"), costs_a_slot);
	assert_int_equal(has_words(problem->detail, "nothing was changed"), !costs_a_slot);
	assert_int_equal(gateway_fixture_take_status(send), 503);
}

static void test_an_answer_says_whether_a_slot_was_spent(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	for (int cached = 0; cached < 2; cached++) {
		gateway_fixture_open(&fixture, cached);
		gateway_fixture_configure(&fixture);
		fake_bus.fate = BUS_NOT_PERSISTED;
		check_unsent(&fixture, NULL, STATUS_BUS_UNAVAILABLE, cached);
		check_unsent(&fixture, "key", STATUS_BUS_UNAVAILABLE, false);
		assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 0);
		fake_bus.fate = BUS_UNKNOWN;
		check_unsent(&fixture, NULL, STATUS_OUTCOME_UNKNOWN, true);
		check_unsent(&fixture, "key", STATUS_OUTCOME_UNKNOWN, true);
		assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 2);
		gateway_fixture_close(&fixture);
	}
}

/* A repository whose lock() fails, as often as it is called, unless the status is OK. */
static struct refusing {
	struct limit_repository base;
	struct limit_repository_ops ops;
	enum status status;
} refusing;

static enum status refuse_to_lock(const struct limit_repository *repository,
	struct session *session, struct limit_row *rows, size_t count, int64_t *now_us)
{
	(void)repository;
	if (refusing.status == STATUS_OK)
		return faulty_limit_repository.ops->lock(
			&faulty_limit_repository, session, rows, count, now_us);
	session->ops->rollback(session);
	return refusing.status;
}

static void open_refusing(struct gateway_fixture *fixture)
{
	refusing.ops = *faulty_limit_repository.ops;
	refusing.ops.lock = refuse_to_lock;
	refusing.base = faulty_limit_repository;
	refusing.base.ops = &refusing.ops;
	refusing.status = STATUS_OK;
	gateway_fixture_open(fixture, true);
	fixture->gateway.repository = &refusing.base;
	gateway_fixture_configure(fixture);
	assert_int_equal(gateway_fixture_send_many(fixture, 1, 200), 1);
}

/* Checks that the write failed and changed nothing: the cached copy has no slot too few. */
static void check_unchanged(
	struct gateway_fixture *fixture, struct fixture_send *failed, enum status status)
{
	const struct problem *problem = failed->command.write.command.answer.problem;

	assert_true(failed->command.cached);
	assert_int_equal(problem->status, status);
	assert_true(has_words(problem->detail, "nothing was changed"));
	gateway_fixture_take_status(failed);
	assert_false(gateway_fixture_copy_of(fixture).hit);
	assert_int_equal(gateway_fixture_send_many(fixture, LIMIT + 1, 200), LIMIT - 1);
	assert_true(gateway_fixture_copy_of(fixture).hit);
}

static void test_a_slot_that_the_store_could_not_reserve_is_not_spent_in_the_cache(void **unused)
{
	static const struct {
		enum status fault, status;
	} faults[] = {
		{STATUS_STORE_UNAVAILABLE, STATUS_STORE_UNAVAILABLE},
		{STATUS_RERUN, STATUS_OVERLOADED}, /* every time */
		{STATUS_POISON, STATUS_INTERNAL},
	};
	static const enum gateway_verb verbs[] = {GATEWAY_SEND, GATEWAY_TAKE};
	struct gateway_fixture fixture;
	struct fixture_send *failed;

	(void)unused;
	for (size_t i = 0; i < 6; i++) {
		open_refusing(&fixture);
		refusing.status = faults[i / 2].fault;
		failed = gateway_fixture_submit(&fixture, verbs[i % 2], "u", NULL);
		gateway_fixture_step(&fixture);
		refusing.status = STATUS_OK;
		check_unchanged(&fixture, failed, faults[i / 2].status);
		gateway_fixture_close(&fixture);
	}
}

static void test_a_slot_that_waited_for_a_row_in_vain_is_not_spent_in_the_cache(void **unused)
{
	struct gateway_fixture fixture;
	struct fixture_send *failed;

	(void)unused;
	open_refusing(&fixture);
	faulty_store_hold(fixture.store, slice_of("u"), true);
	failed = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", NULL);
	gateway_fixture_step(&fixture);
	assert_false(failed->answered); /* it is parked, and its slot is taken in the copy */
	assert_true(gateway_fixture_copy_of(&fixture).hit);
	manual_clock_pass(&fixture.clock, DEADLINE_NS);
	gateway_fixture_step(&fixture);
	faulty_store_hold(fixture.store, slice_of("u"), false);
	check_unchanged(&fixture, failed, STATUS_OVERLOADED);
	gateway_fixture_close(&fixture);
}

/* The store fails while it should record that the message was not sent. */
static void test_a_slot_that_may_not_be_given_back_is_not_called_unchanged(void **unused)
{
	struct gateway_fixture fixture;
	struct fixture_send *send;

	(void)unused;
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	fake_bus.fate = BUS_NOT_PERSISTED;
	fixture.store->survives = false;
	/* begin lock put COMMIT, begin settle COMMIT */
	faulty_store_fail_at(fixture.store, 7, STATUS_OUTCOME_UNKNOWN);
	send = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", NULL);
	gateway_fixture_step(&fixture);
	assert_true(fixture.store->has_failed);
	assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 1);
	assert_int_equal(
		send->command.write.command.answer.problem->status, STATUS_OUTCOME_UNKNOWN);
	assert_int_equal(gateway_fixture_take_status(send), 503);
	gateway_fixture_close(&fixture);
}

/* Its user has been removed in the meantime, so the retry cannot find out what became of it. */
static void test_a_message_that_may_be_sent_is_not_called_refused(void **unused)
{
	struct gateway_fixture fixture;
	struct fixture_send *again;

	(void)unused;
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	fake_bus.fate = BUS_UNKNOWN;
	check_unsent(&fixture, "key", STATUS_OUTCOME_UNKNOWN, true);
	again = gateway_fixture_submit(&fixture, GATEWAY_REMOVE, "u", NULL);
	gateway_fixture_step(&fixture);
	assert_int_equal(gateway_fixture_take_status(again), 204);
	fixture.store->now_us += IDEMPOTENCY_LEASE_US + 1;
	again = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", "key");
	gateway_fixture_step(&fixture);
	assert_int_equal(
		again->command.write.command.answer.problem->status, STATUS_OUTCOME_UNKNOWN);
	assert_int_equal(gateway_fixture_take_status(again), 503);
	gateway_fixture_configure(&fixture); /* now the retry can be admitted */
	fake_bus.fate = BUS_CONFIRMED;
	again = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", "key");
	gateway_fixture_step(&fixture);
	assert_int_equal(gateway_fixture_take_status(again), 200);
	gateway_fixture_close(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_r11_6_a_failed_publish_costs_a_slot_on_the_cache_path),
		cmocka_unit_test(test_an_answer_says_whether_a_slot_was_spent),
		cmocka_unit_test(
			test_a_slot_that_the_store_could_not_reserve_is_not_spent_in_the_cache),
		cmocka_unit_test(
			test_a_slot_that_waited_for_a_row_in_vain_is_not_spent_in_the_cache),
		cmocka_unit_test(test_a_slot_that_may_not_be_given_back_is_not_called_unchanged),
		cmocka_unit_test(test_a_message_that_may_be_sent_is_not_called_refused),
	};

	log_configure((enum log_level)(LOG_ERROR + 1), LOG_TEXT); /* the store is meant to fail */
	return cmocka_run_group_tests_name("gateway failures", tests, NULL, NULL);
}

/* What ports/store.h promises of answers remembered under an Idempotency-Key, on one engine. */
#include <pthread.h>
#include <stdlib.h>

#include "idempotency_fixture.h"

static void assert_same_answer(const struct answer *a, const struct answer *b)
{
	assert_int_equal(a->http_status, b->http_status);
	assert_true(slice_equal(a->content_type, b->content_type));
	assert_true(slice_equal(a->location, b->location));
	assert_true(slice_equal(a->body, b->body));
}

/* ---- keys -------------------------------------------------------------------------------- */

static void an_unknown_key_is_not_found(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");

	record.found = true; /* what stood there before does not matter */
	assert_false(idempotency_fixture_is_known(engine, &record));
}

static void a_key_gives_its_answer_back_byte_for_byte(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");
	struct idempotency_record found;

	idempotency_fixture_put_and_commit(engine->session, &record);
	found = idempotency_fixture_look_up(engine, engine->session, &record);
	assert_true(found.found);
	assert_true(found.same_request);
	assert_same_answer(&found.answer, &record.answer);
}

static void an_answer_may_be_empty(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");
	struct idempotency_record found;

	record.answer = (struct answer){.http_status = 204};
	idempotency_fixture_put_and_commit(engine->session, &record);
	found = idempotency_fixture_look_up(engine, engine->session, &record);
	assert_true(found.found);
	assert_same_answer(&found.answer, &record.answer);
}

static void an_answer_may_be_long_and_hold_any_byte(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");
	struct buffer body = buffer_make(&engine->arena, 70000);
	struct idempotency_record found;

	for (int i = 0; i < 70000; i++)
		buffer_char(&body, (char)(i % 256));
	record.answer.body = buffer_slice(&body);
	idempotency_fixture_put_and_commit(engine->session, &record);
	found = idempotency_fixture_look_up(engine, engine->session, &record);
	assert_same_answer(&found.answer, &record.answer);
}

static void another_request_under_the_key_is_told_apart(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");
	struct idempotency_record found;

	idempotency_fixture_put_and_commit(engine->session, &record);
	record.fingerprint[FINGERPRINT_SIZE - 1] ^= 1;
	found = idempotency_fixture_look_up(engine, engine->session, &record);
	assert_true(found.found);
	assert_false(found.same_request);
}

static void scopes_are_apart(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record grant = idempotency_fixture_record(engine, "grant", "k");
	struct idempotency_record revoke = idempotency_fixture_record(engine, "revoke", "k");

	idempotency_fixture_put_and_commit(engine->session, &grant);
	assert_false(idempotency_fixture_is_known(engine, &revoke));
	idempotency_fixture_put_and_commit(engine->session, &revoke);
	assert_true(idempotency_fixture_is_known(engine, &revoke));
}

static void a_key_is_found_in_its_own_transaction(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");
	struct idempotency_record question = idempotency_fixture_question(&record);

	engine_begin(session);
	assert_int_equal(idempotency_fixture_put(session, &record, 1), STATUS_OK);
	assert_int_equal(
		session->ops->idempotency_find(session, &engine->arena, &question, 1), STATUS_OK);
	engine_commit(session);
	assert_true(question.found);
}

static void no_keys_at_all_is_fine(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;

	engine_begin(session);
	assert_int_equal(
		session->ops->idempotency_find(session, &engine->arena, NULL, 0), STATUS_OK);
	assert_int_equal(session->ops->idempotency_put(session, NULL, 0, HOUR_US), STATUS_OK);
	engine_commit(session);
}

#define MANY 1000

/* Sorted, with characters that a careless statement would trip over. */
static struct idempotency_record *many_records(struct engine *engine)
{
	struct idempotency_record *records =
		arena_array(&engine->arena, struct idempotency_record, MANY);

	for (int i = 0; i < MANY; i++) {
		struct buffer key = buffer_make(&engine->arena, 64);

		buffer_format(&key, "%04d '\"\\%%{},NULL ü 🧮", i);
		records[i] = idempotency_fixture_record(engine, "s'\"%", "");
		records[i].key = buffer_slice(&key);
		records[i].answer.body = buffer_slice(&key);
	}
	return records;
}

static void a_thousand_keys_go_in_one_batch(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	struct idempotency_record *records = many_records(engine);
	struct idempotency_record *found =
		arena_array(&engine->arena, struct idempotency_record, MANY);

	engine_begin(session);
	assert_int_equal(idempotency_fixture_put(session, records, MANY), STATUS_OK);
	engine_commit(session);
	for (int i = 0; i < MANY; i++)
		found[i] = idempotency_fixture_question(&records[i]);
	engine_begin(session);
	assert_int_equal(
		session->ops->idempotency_find(session, &engine->arena, found, MANY), STATUS_OK);
	engine_commit(session);
	for (int i = 0; i < MANY; i++) {
		assert_true(found[i].found);
		assert_same_answer(&found[i].answer, &records[i].answer);
	}
}

static void keys_may_have_their_full_length(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "");

	record.key = engine_long_name(engine, 'k', 255);
	idempotency_fixture_put_and_commit(engine->session, &record);
	assert_true(idempotency_fixture_is_known(engine, &record));
}

static void a_batch_with_one_live_key_changes_nothing(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	struct idempotency_record records[3] = {idempotency_fixture_record(engine, "s", "a"),
		idempotency_fixture_record(engine, "s", "b"),
		idempotency_fixture_record(engine, "s", "c")};

	idempotency_fixture_put_and_commit(session, &records[1]);
	engine_begin(session);
	assert_int_equal(idempotency_fixture_put(session, records, 3), STATUS_RERUN);
	assert_false(idempotency_fixture_is_known(engine, &records[0]));
	assert_true(idempotency_fixture_is_known(engine, &records[1]));
	assert_false(idempotency_fixture_is_known(engine, &records[2]));
}

/* ---- keys whose work goes on outside the store ------------------------------------------- */

static struct idempotency_record put_pending(struct engine *engine, const char *key)
{
	struct idempotency_record record = idempotency_fixture_record(engine, "s", key);

	record.owner = slice_of("owner 1");
	record.note = (struct slice)SLICE("where it stands: '\"%");
	idempotency_fixture_put_and_commit(engine->session, &record);
	return record;
}

typedef enum status (*key_verb)(
	struct session *session, struct idempotency_record *records, size_t count);

/* Runs `verb` on one record in a transaction, and tells whether the key was the owner's. */
static bool change_one(
	struct engine *engine, key_verb verb, struct idempotency_record record, const char *owner)
{
	record.owner = slice_of(owner);
	engine_begin(engine->session);
	assert_int_equal(verb(engine->session, &record, 1), STATUS_OK);
	engine_commit(engine->session);
	return record.was_ours;
}

static void a_pending_key_gives_its_owner_and_note_back(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = put_pending(engine, "k");
	struct idempotency_record plain = idempotency_fixture_record(engine, "s", "plain");
	struct idempotency_record found =
		idempotency_fixture_look_up(engine, engine->session, &record);

	assert_true(found.found && found.same_request && !found.lease_is_over);
	assert_true(slice_equal(found.owner, record.owner));
	assert_true(slice_equal(found.note, record.note));
	idempotency_fixture_put_and_commit(engine->session, &plain);
	assert_int_equal(idempotency_fixture_look_up(engine, engine->session, &plain).owner.len, 0);
}

static void only_its_owner_finishes_a_key_and_its_answer_stays(void **state)
{
	struct engine *engine = *state;
	const struct session_ops *ops = engine->session->ops;
	struct idempotency_record records[2] = {put_pending(engine, "a"), put_pending(engine, "b")};
	struct idempotency_record found;

	assert_false(change_one(engine, ops->idempotency_finish, records[0], "owner 2"));
	assert_true(
		idempotency_fixture_look_up(engine, engine->session, &records[0]).owner.len > 0);
	assert_true(change_one(engine, ops->idempotency_finish, records[0], "owner 1"));
	assert_false(change_one(engine, ops->idempotency_finish, records[0], "owner 1"));
	found = idempotency_fixture_look_up(engine, engine->session, &records[0]);
	assert_true(found.found && found.owner.len == 0);
	assert_same_answer(&found.answer, &records[0].answer);
	assert_true(
		idempotency_fixture_look_up(engine, engine->session, &records[1]).owner.len > 0);
}

static void only_its_owner_forgets_a_key_which_is_free_then(void **state)
{
	struct engine *engine = *state;
	const struct session_ops *ops = engine->session->ops;
	struct idempotency_record records[2] = {put_pending(engine, "a"), put_pending(engine, "b")};

	assert_false(change_one(engine, ops->idempotency_forget, records[0], "owner 2"));
	assert_true(idempotency_fixture_is_known(engine, &records[0]));
	assert_true(change_one(engine, ops->idempotency_forget, records[0], "owner 1"));
	assert_false(idempotency_fixture_is_known(engine, &records[0]));
	assert_true(idempotency_fixture_is_known(engine, &records[1]));
	idempotency_fixture_put_and_commit(engine->session, &records[0]);
}

static void a_key_is_claimed_after_its_lease_and_the_old_owner_has_lost_it(void **state)
{
	struct engine *engine = *state;
	const struct session_ops *ops = engine->session->ops;
	struct idempotency_record record = put_pending(engine, "k");

	assert_false(change_one(engine, ops->idempotency_claim, record, "owner 2"));
	assert_false(change_one(engine, ops->idempotency_release, record, "owner 2"));
	assert_true(change_one(engine, ops->idempotency_release, record, "owner 1"));
	assert_true(idempotency_fixture_look_up(engine, engine->session, &record).lease_is_over);
	assert_true(change_one(engine, ops->idempotency_claim, record, "owner 2"));
	assert_false(idempotency_fixture_look_up(engine, engine->session, &record).lease_is_over);
	assert_false(change_one(engine, ops->idempotency_claim, record, "owner 3"));
	assert_false(change_one(engine, ops->idempotency_finish, record, "owner 1"));
	assert_true(change_one(engine, ops->idempotency_finish, record, "owner 2"));
	assert_false(change_one(engine, ops->idempotency_claim, record, "owner 3"));
}

/* ---- time -------------------------------------------------------------------------------- */

static void put_expired(
	struct session *session, const struct idempotency_record *record, int64_t ttl_us)
{
	engine_begin(session);
	assert_int_equal(session->ops->idempotency_put(session, record, 1, ttl_us), STATUS_OK);
	engine_commit(session);
}

static void an_expired_key_counts_as_absent_and_is_replaced(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");

	put_expired(session, &record, -1000000);
	assert_false(idempotency_fixture_is_known(engine, &record));
	put_expired(session, &record, 0);
	assert_false(idempotency_fixture_is_known(engine, &record));
	record.answer.http_status = 404;
	idempotency_fixture_put_and_commit(session, &record);
	assert_int_equal(
		idempotency_fixture_look_up(engine, session, &record).answer.http_status, 404);
}

static void a_key_lives_as_long_as_it_was_told_to(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");

	idempotency_fixture_put_and_commit(engine->session, &record);
	engine_shift_us(engine, HOUR_US - 10 * 1000000);
	assert_true(idempotency_fixture_is_known(engine, &record));
	engine_shift_us(engine, 10 * 1000000);
	assert_false(idempotency_fixture_is_known(engine, &record));
}

static size_t sweep(struct session *session, size_t limit)
{
	size_t deleted = 0;

	assert_int_equal(session->ops->idempotency_sweep(session, limit, &deleted), STATUS_OK);
	return deleted;
}

static void a_sweep_removes_expired_keys_up_to_its_limit(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	struct idempotency_record live = idempotency_fixture_record(engine, "s", "live");
	const char *const names[] = {"a", "b", "c", "d", "e"};

	while (sweep(session, MANY) > 0)
		; /* what other tests have left */
	idempotency_fixture_put_and_commit(session, &live);
	for (int i = 0; i < 5; i++) {
		struct idempotency_record record =
			idempotency_fixture_record(engine, "s", names[i]);

		put_expired(session, &record, 0);
	}
	assert_int_equal(sweep(session, 3), 3);
	assert_int_equal(sweep(session, 3), 2);
	assert_int_equal(sweep(session, 3), 0);
	assert_true(idempotency_fixture_is_known(engine, &live));
}

/* ---- several sessions at once ------------------------------------------------------------ */

#define RACERS 4
#define RACES 50

struct racer {
	struct engine *engine;
	struct session *session;
	struct arena arena;
	const struct idempotency_record *records;
	size_t firsts; /* how often this thread was the one to put the key */
};

/* One keyed request: OK with or without having been first, or what the session said. */
static enum status try_key(
	struct racer *racer, const struct idempotency_record *record, bool *was_first)
{
	struct session *session = racer->session;
	struct idempotency_record question = idempotency_fixture_question(record);
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	*was_first = false;
	if (status == STATUS_OK)
		status = session->ops->idempotency_find(session, &racer->arena, &question, 1);
	if (status == STATUS_OK && !question.found) {
		*was_first = true;
		status = idempotency_fixture_put(session, record, 1);
	}
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status;
}

static void *race(void *argument)
{
	struct racer *racer = argument;

	for (int i = 0; i < RACES; i++) {
		enum status status;
		bool was_first;

		do {
			status = try_key(racer, &racer->records[i], &was_first);
		} while (engine_is_collision(status));
		if (status != STATUS_OK)
			abort();
		racer->firsts += was_first;
	}
	return NULL;
}

static void one_of_many_is_first_with_a_key(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record *records = many_records(engine);
	struct racer racers[RACERS];
	pthread_t threads[RACERS];
	size_t firsts = 0;

	for (int i = 0; i < RACERS; i++) {
		racers[i] = (struct racer){
			.engine = engine,
			.session = engine_session(engine, SESSION_WRITE),
			.records = records,
		};
		arena_init(&racers[i].arena, 4096);
	}
	for (int i = 0; i < RACERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
	for (int i = 0; i < RACERS; i++) {
		pthread_join(threads[i], NULL);
		arena_release(&racers[i].arena);
		firsts += racers[i].firsts;
	}
	assert_int_equal(firsts, RACES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(an_unknown_key_is_not_found),
		ENGINE_TEST(a_key_gives_its_answer_back_byte_for_byte),
		ENGINE_TEST(an_answer_may_be_empty),
		ENGINE_TEST(an_answer_may_be_long_and_hold_any_byte),
		ENGINE_TEST(another_request_under_the_key_is_told_apart),
		ENGINE_TEST(scopes_are_apart),
		ENGINE_TEST(a_key_is_found_in_its_own_transaction),
		ENGINE_TEST(no_keys_at_all_is_fine),
		ENGINE_TEST(a_thousand_keys_go_in_one_batch),
		ENGINE_TEST(keys_may_have_their_full_length),
		ENGINE_TEST(a_batch_with_one_live_key_changes_nothing),
		ENGINE_TEST(a_pending_key_gives_its_owner_and_note_back),
		ENGINE_TEST(only_its_owner_finishes_a_key_and_its_answer_stays),
		ENGINE_TEST(only_its_owner_forgets_a_key_which_is_free_then),
		ENGINE_TEST(a_key_is_claimed_after_its_lease_and_the_old_owner_has_lost_it),
		ENGINE_TEST(an_expired_key_counts_as_absent_and_is_replaced),
		ENGINE_TEST(a_key_lives_as_long_as_it_was_told_to),
		ENGINE_TEST(a_sweep_removes_expired_keys_up_to_its_limit),
		ENGINE_TEST(one_of_many_is_first_with_a_key),
	};

	return cmocka_run_group_tests_name("idempotency", tests, NULL, NULL);
}

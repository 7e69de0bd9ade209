/*
 * An Idempotency-Key whose effect is under way belongs to its owner for as long as the lease lasts.
 * In these tests another process takes it over at the worst moments. The outcome must be recorded
 * once, by whoever has the key in the end.
 */
#include "check.h"

#include <uv.h>

#include "faulty_store.h"
#include "flow/committer.h"
#include "services/gateway/gateway_batch.h"

#define HOUR_US (3600 * 1000000LL)
#define START_US 1000000 /* the store's time at the start */

/* A service whose only effect is to count. */
struct fixture {
	struct faulty_store *store;
	struct session *session; /* the session of the committer */
	struct lane *lane;
	struct loop *loop;
	struct committer *committer;
	enum write_effect effect;                   /* how every effect ends */
	void (*meanwhile)(struct fixture *fixture); /* if not NULL, runs during the next effect */
	size_t performed;
	size_t settled; /* how many effects were ours to record */
};

struct keyed_write {
	struct write write; /* first */
	struct arena arena;
	bool answered;
};

static const struct command_type keyed_write_type = {"keyed_write", true};

static enum status decide(void *context, struct session *session, const struct write_batch *batch)
{
	(void)context;
	(void)session;
	for (size_t i = 0; i < batch->count; i++)
		write_begin_effect(batch->writes[i], answer_json(200, slice_of("{}")));
	return STATUS_OK;
}

static void perform(void *context, const struct write_batch *batch)
{
	struct fixture *fixture = context;

	fixture->performed += batch->count;
	for (size_t i = 0; i < batch->count; i++) {
		batch->writes[i]->effect = fixture->effect;
		if (fixture->effect == EFFECT_UNKNOWN)
			batch->writes[i]->command.answer = answer_failure(
				batch->writes[i]->command.arena, STATUS_OUTCOME_UNKNOWN);
	}
	if (fixture->meanwhile)
		fixture->meanwhile(fixture);
	fixture->meanwhile = NULL;
}

static enum status settle(void *context, struct session *session, const struct write_batch *batch)
{
	struct fixture *fixture = context;

	(void)session;
	for (size_t i = 0; i < batch->count; i++)
		fixture->settled +=
			batch->writes[i]->effect == EFFECT_DONE && !batch->writes[i]->is_lost;
	return STATUS_OK;
}

static struct session *open_session(struct fixture *fixture)
{
	return faulty_store_open_session(fixture->store, SESSION_WRITE);
}

static void set_up(struct fixture *fixture)
{
	struct committer_config config = {
		.batch_max = 8,
		.held_max = 8,
		.held_bytes_max = SIZE_MAX,
		.idempotency_ttl_us = HOUR_US,
		.clock = &clock_system,
		.decide = decide,
		.perform = perform,
		.settle = settle,
		.service = fixture,
	};

	*fixture = (struct fixture){.store = faulty_store_new(), .effect = EFFECT_DONE};
	fixture->lane = config.lane = lane_new("test", 8, 1000);
	fixture->session = config.session = open_session(fixture);
	fixture->loop = loop_new(NULL, NULL);
	fixture->committer = committer_new(&config);
}

static void tear_down(struct fixture *fixture)
{
	committer_free(fixture->committer);
	lane_free(fixture->lane);
	loop_stop(fixture->loop);
	uv_run(loop_uv(fixture->loop), UV_RUN_DEFAULT);
	loop_free(fixture->loop);
	faulty_store_free(fixture->store);
}

static void on_answered(struct loop_task *task)
{
	((struct keyed_write *)task)->answered = true;
}

/* Sends one request with the key "key" and returns its HTTP status. */
static int ask(struct fixture *fixture)
{
	static const struct idempotency_record record = {
		.scope = SLICE("scope"), .key = SLICE("key")};
	struct keyed_write keyed = {0};
	struct command *command = &keyed.write.command;

	arena_init(&keyed.arena, 512);
	command->type = &keyed_write_type;
	command->task.run = on_answered;
	command->loop = fixture->loop;
	command->arena = &keyed.arena;
	command->key = slice_of("item");
	command->deadline_ns = INT64_MAX;
	write_set_idempotency(&keyed.write, &keyed.arena, &record);
	assert_int_equal(lane_submit(fixture->lane, command), STATUS_OK);
	committer_step(fixture->committer);
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
	assert_true(keyed.answered);
	arena_release(&keyed.arena);
	return command->answer.http_status;
}

/* Another process finds that the key is pending and its lease is over: it carries out the effect
 * and records it. */
static void take_over(struct fixture *fixture)
{
	struct session *other = open_session(fixture);
	struct idempotency_record key = {
		.scope = SLICE("scope"), .key = SLICE("key"), .owner = SLICE("other")};

	key.answer = answer_json(200, slice_of("{}"));
	fixture->store->now_us = START_US + IDEMPOTENCY_LEASE_US;
	assert_int_equal(other->ops->begin(other, TRANSACTION_WAIT), STATUS_OK);
	assert_int_equal(other->ops->idempotency_claim(other, &key, 1), STATUS_OK);
	assert_true(key.was_ours);
	assert_int_equal(other->ops->idempotency_finish(other, &key, 1), STATUS_OK);
	assert_int_equal(other->ops->commit(other), STATUS_OK);
	session_close(other);
}

static void who_lost_the_key_during_the_effect_does_not_record_it(void **state)
{
	struct fixture fixture;

	(void)state;
	set_up(&fixture);
	fixture.meanwhile = take_over;
	assert_int_equal(ask(&fixture), 503);
	assert_int_equal(fixture.performed, 1);
	assert_int_equal(fixture.settled, 0);
	assert_int_equal(ask(&fixture), 200); /* the stored answer of the first request */
	assert_int_equal(fixture.performed, 1);
	tear_down(&fixture);
}

static const struct session_ops *real_ops;

/* Fails once, as if another process was faster. */
static enum status lose_claim(
	struct session *session, struct idempotency_record *records, size_t count)
{
	for (size_t i = 0; i < count; i++)
		records[i].was_ours = false;
	session->ops = real_ops;
	return STATUS_OK;
}

static void who_loses_the_race_for_a_pending_key_undoes_everything_and_looks_again(void **state)
{
	struct session_ops losing;
	struct fixture fixture;

	(void)state;
	set_up(&fixture);
	fixture.effect = EFFECT_UNKNOWN;
	assert_int_equal(ask(&fixture), 503);
	fixture.effect = EFFECT_DONE;
	real_ops = fixture.session->ops;
	losing = *real_ops;
	losing.idempotency_claim = lose_claim;
	fixture.session->ops = &losing;
	assert_int_equal(ask(&fixture), 200);
	assert_ptr_equal(fixture.session->ops, real_ops);
	assert_int_equal(fixture.performed, 2);
	assert_int_equal(fixture.settled, 1);
	tear_down(&fixture);
}

/* ---- the gateway -------------------------------------------------------------------------- */

static int32_t counted;
static size_t noted;

static enum status count_settlements(const struct limit_repository *repository,
	struct session *session, const struct limit_settlement *settlements, size_t count)
{
	(void)session;
	for (size_t i = 0; i < count; i++)
		counted += settlements[i].confirmed + settlements[i].given_back;
	return STATUS_OK;
}

static enum status count_notes(const struct outbound_repository *repository,
	struct session *session, const struct outbound_message *messages, size_t count)
{
	(void)repository;
	(void)session;
	(void)messages;
	noted += count;
	return STATUS_OK;
}

static void the_gateway_counts_only_sends_whose_key_it_has_kept(void **state)
{
	static const struct outbound_repository_ops messages_ops = {.note = count_notes};
	static const struct outbound_repository messages = {.ops = &messages_ops};
	static const struct limit_repository_ops repository_ops = {.settle = count_settlements};
	static const struct limit_repository repository = {.ops = &repository_ops};
	struct gateway gateway = {.repository = &repository, .messages = &messages};
	struct gateway_lane lane = {.gateway = &gateway};
	struct gateway_command sends[3] = {
		{.write = {.command.type = &gateway_command_type, .effect = EFFECT_DONE},
			.verb = GATEWAY_SEND,
			.slots = 1},
		{.write = {.command.type = &gateway_command_type,
			 .effect = EFFECT_DONE,
			 .is_lost = true},
			.verb = GATEWAY_SEND,
			.slots = 1},
		{.write = {.command.type = &gateway_command_type,
			 .effect = EFFECT_FAILED,
			 .is_lost = true},
			.verb = GATEWAY_SEND,
			.slots = 1},
	};
	struct write *writes[] = {&sends[0].write, &sends[1].write, &sends[2].write};
	struct arena arena;
	struct write_batch batch = {.writes = writes, .count = 3, .arena = &arena};

	(void)state;
	arena_init(&arena, 512);
	counted = 0;
	noted = 0;
	assert_int_equal(gateway_batch_settle(&lane, NULL, &batch), STATUS_OK);
	assert_int_equal(counted, 1);
	assert_int_equal(noted, 1);
	arena_release(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_lost_the_key_during_the_effect_does_not_record_it),
		cmocka_unit_test(
			who_loses_the_race_for_a_pending_key_undoes_everything_and_looks_again),
		cmocka_unit_test(the_gateway_counts_only_sends_whose_key_it_has_kept),
	};

	return cmocka_run_group_tests_name("takeover", tests, NULL, NULL);
}

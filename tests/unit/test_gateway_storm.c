/*
 * The committer and the publisher of the gateway on their threads, while the bus and the store do
 * their worst (gateway_storm.h). Whatever happens, the answers must be true. Without threads,
 * test_gateway.c asks the same of many more cases.
 *
 * A seed decides what each thread does, but not how the threads take turns, so a case that failed
 * may pass next time: QUIPU_SEED (effort.h) repeats it many times.
 */
#include "check.h"

#include <uv.h>

#include "base/digest.h"
#include "effort.h"
#include "flow/committer.h"
#include "gateway_storm.h"
#include "services/gateway/gateway_batch.h"
#include "waiting.h"

#define COMMANDS (STORM_USERS + 200)
#define LAST_COMMANDS 50 /* sent while the storm ends */
#define UNANSWERED_MAX 40
#define NARROW_MAX 10
#define BURST_MAX 8
#define BATCH_MAX 8
#define KEYS 4 /* of each user */
#define BYTES_MAX 1000
#define LANE_BYTES_MAX (COMMANDS * BYTES_MAX)

struct sent {
	struct gateway_command command; /* first */
	struct arena arena;
	size_t user;
	char key[8];              /* empty: no Idempotency-Key */
	atomic_bool is_under_way; /* its slot is reserved; set by the committer */
	size_t answers;
};

struct storm {
	struct storm *before;
	struct dice dice; /* of the clients */
	bool is_gentle;   /* every count must be exact, and no deadline ends a wait */
	bool is_narrow;   /* less may wait than the clients send */
	bool is_aborted;  /* at its end, while the bus hangs */
	int rate_limit;   /* reached soon, or hardly ever */
	size_t batch_max;
	struct bus always; /* is always up; the producer is the bus below */
	struct storm_bus bus;
	struct storm_limits limits;
	struct gateway gateway;
	struct gateway_lane gateway_lane;
	struct lane *lane;
	struct loop *loop;
	struct committer *committer;
	struct sent sent[COMMANDS];
	size_t sent_count;
};

/* A storm that failed stays here: the seed is not buried under a report of leaks. */
static struct storm *latest;

/* ---- the fixture ------------------------------------------------------------------------- */

static bool is_up(struct bus *bus)
{
	(void)bus;
	return true;
}

static const struct bus_ops always_up = {.is_up = is_up};

static void open_gateway(struct storm *storm)
{
	storm->always.ops = &always_up;
	storm->gateway.repository = &storm->limits.base;
	storm->gateway.messages = &faulty_outbound_repository;
	storm->gateway.bus = &storm->always;
	storm->gateway.window_unit_us = STORM_WINDOW_US;
	storm->gateway_lane.gateway = &storm->gateway;
	storm->gateway_lane.producer = &storm->bus.producer;
	arena_init(&storm->gateway_lane.stale_arena, 512);
}

static void note_and_perform(void *service, const struct write_batch *batch)
{
	for (size_t i = 0; i < batch->count; i++)
		atomic_store(&((struct sent *)batch->writes[i])->is_under_way, true);
	gateway_batch_perform(service, batch);
}

static struct committer *open_committer(struct storm *storm)
{
	struct lane_service service = gateway_lane_service(&storm->gateway);
	const struct committer_config config = {
		.lane = storm->lane,
		.session = faulty_store_open_session(storm->limits.store, SESSION_WRITE),
		.batch_max = storm->batch_max,
		.held_max = storm->is_narrow ? NARROW_MAX : COMMANDS,
		.held_bytes_max = storm->is_narrow ? NARROW_MAX * BYTES_MAX / 2 : SIZE_MAX,
		.idempotency_ttl_us = 1440 * STORM_WINDOW_US,
		.clock = &clock_system,
		.prepare = service.prepare,
		.decide = service.decide,
		.perform = note_and_perform,
		.publishing = service.publishing,
		.settle = service.settle,
		.failed = service.failed,
		.service = &storm->gateway_lane,
	};

	return committer_new(&config);
}

/* The first eight seeds already have every combination of what matters most. */
static void draw_kind(struct storm *storm, uint64_t seed)
{
	storm->is_narrow = seed & 1;
	storm->rate_limit = seed & 2 ? 40 : 5;
	storm->is_aborted = seed & 4;
	storm->batch_max = 1 + (size_t)dice_below(&storm->dice, BATCH_MAX);
}

/* Not on the stack, where a test that fails would leave it to threads that still run. */
static struct storm *storm_new(uint64_t seed, bool is_gentle)
{
	struct storm *storm = qp_calloc(1, sizeof(*storm));

	storm->dice.state = seed;
	storm->is_gentle = is_gentle;
	storm->before = latest;
	latest = storm;
	draw_kind(storm, seed);
	storm_bus_init(&storm->bus, dice_next(&storm->dice));
	storm_limits_init(&storm->limits, dice_next(&storm->dice), is_gentle);
	open_gateway(storm);
	storm->lane = lane_new("test", COMMANDS, LANE_BYTES_MAX);
	storm->loop = loop_new(NULL, NULL);
	storm->committer = open_committer(storm);
	return storm;
}

static void storm_free(struct storm *storm)
{
	committer_free(storm->committer);
	lane_free(storm->lane);
	loop_stop(storm->loop);
	uv_run(loop_uv(storm->loop), UV_RUN_DEFAULT);
	loop_free(storm->loop);
	for (size_t i = 0; i < storm->sent_count; i++)
		arena_release(&storm->sent[i].arena);
	arena_release(&storm->gateway_lane.stale_arena);
	storm_limits_release(&storm->limits);
	storm_bus_release(&storm->bus);
	latest = storm->before;
	free(storm);
}

/* ---- the clients ------------------------------------------------------------------------- */

static void on_answered(struct loop_task *task)
{
	((struct sent *)task)->answers++;
}

static void prepare(struct storm *storm, struct sent *sent, enum gateway_verb verb, size_t user)
{
	struct command *command = &sent->command.write.command;

	arena_init(&sent->arena, 512);
	sent->user = user;
	sent->command.verb = verb;
	sent->command.amount = 1;
	sent->command.user.text = slice_of(storm_users[user]);
	sent->command.message = slice_of("Hello!");
	sent->command.rate_limit = storm->rate_limit;
	sent->command.time_window = 1;
	command->type = &gateway_command_type;
	command->task.run = on_answered;
	command->loop = storm->loop;
	command->arena = &sent->arena;
	command->key = slice_of(storm_users[user]);
	command->bytes = 1 + (size_t)dice_below(&storm->dice, BYTES_MAX);
	command->deadline_ns = INT64_MAX;
}

static void submit(struct storm *storm, struct sent *sent)
{
	assert_int_equal(lane_submit(storm->lane, &sent->command.write.command), STATUS_OK);
}

static void add_key(struct storm *storm, struct sent *sent)
{
	struct idempotency_record record = {.scope = SLICE("POST /api/send")};

	snprintf(sent->key, sizeof(sent->key), "%s%u", storm_users[sent->user],
		(unsigned)dice_below(&storm->dice, KEYS));
	record.key = slice_of(sent->key);
	digest_sha256(record.key, record.fingerprint);
	write_set_idempotency(&sent->command.write, &sent->arena, &record);
}

/* Mostly sends. A change of the configuration begins a new window, so gentle storms have none. */
static enum gateway_verb draw_verb(struct storm *storm)
{
	uint64_t drawn = dice_below(&storm->dice, 40);

	if (drawn < 4 && !storm->is_gentle)
		return drawn == 0 ? GATEWAY_REMOVE : GATEWAY_CONFIGURE;
	return drawn < 7 ? GATEWAY_TAKE : GATEWAY_SEND;
}

static void send_one(struct storm *storm)
{
	struct sent *sent = &storm->sent[storm->sent_count++];
	enum gateway_verb verb = draw_verb(storm);

	prepare(storm, sent, verb, (size_t)dice_below(&storm->dice, STORM_USERS));
	if (!storm->is_gentle)
		sent->command.write.command.deadline_ns =
			in_ms(dice_below(&storm->dice, 5) > 0 ? 400 : 30);
	if (verb == GATEWAY_SEND && dice_below(&storm->dice, 3) == 0)
		add_key(storm, sent);
	submit(storm, sent);
}

static size_t count_unanswered(struct storm *storm)
{
	size_t count = 0;

	uv_run(loop_uv(storm->loop), UV_RUN_NOWAIT);
	for (size_t i = 0; i < storm->sent_count; i++)
		count += storm->sent[i].answers == 0;
	return count;
}

/* Of what is under way, the bus decides when it is answered; of the rest, the committer. */
static size_t count_waiting(struct storm *storm)
{
	size_t count = 0;

	uv_run(loop_uv(storm->loop), UV_RUN_NOWAIT);
	for (size_t i = 0; i < storm->sent_count; i++)
		count += storm->sent[i].answers == 0 && !atomic_load(&storm->sent[i].is_under_way);
	return count;
}

static void send_burst(struct storm *storm)
{
	size_t burst = 1 + (size_t)dice_below(&storm->dice, BURST_MAX);

	for (size_t i = 0; i < burst && storm->sent_count < COMMANDS; i++)
		send_one(storm);
	nap_ms((int64_t)dice_below(&storm->dice, 4));
	WAIT_UNTIL(count_unanswered(storm) < UNANSWERED_MAX);
}

/* Before the threads start, and before anything fails. */
static void configure_users(struct storm *storm)
{
	atomic_store(&storm->limits.is_calm, true);
	for (size_t user = 0; user < STORM_USERS; user++) {
		struct sent *sent = &storm->sent[storm->sent_count++];

		prepare(storm, sent, GATEWAY_CONFIGURE, user);
		submit(storm, sent);
		committer_step(storm->committer);
	}
	assert_int_equal(count_unanswered(storm), 0);
	atomic_store(&storm->limits.is_calm, false);
}

/* An abort waits for what is under way, and for nothing else. */
static void abort_while_bus_hangs(struct storm *storm)
{
	storm_bus_hang(&storm->bus, true);
	while (storm->sent_count < COMMANDS)
		send_one(storm);
	nap_ms((int64_t)dice_below(&storm->dice, 100)); /* until they wait in different places */
	if (dice_below(&storm->dice, 2))
		lane_close(storm->lane);
	committer_abort(storm->committer);
	lane_close(storm->lane);
	WAIT_UNTIL(count_waiting(storm) == 0);
	storm_bus_hang(&storm->bus, false);
}

static void end_storm(struct storm *storm)
{
	atomic_store(&storm->limits.is_calm, dice_below(&storm->dice, 2) == 0);
	if (storm->is_aborted)
		abort_while_bus_hangs(storm);
	while (storm->sent_count < COMMANDS)
		send_burst(storm);
	if (dice_below(&storm->dice, 2))
		lane_close(storm->lane); /* before the last answer */
	WAIT_UNTIL(count_unanswered(storm) == 0);
	lane_close(storm->lane);
	committer_join(storm->committer);
	assert_int_equal(count_unanswered(storm), 0); /* takes what was answered twice */
}

/* ---- the judgement ----------------------------------------------------------------------- */

static const struct answer *answer_of(const struct sent *sent)
{
	return &sent->command.write.command.answer;
}

/* Returns false if the answer admits that something may have happened. */
static bool says_nothing_changed(const struct sent *sent)
{
	const struct answer *answer = answer_of(sent);

	return answer->http_status != 200 && !has_text(answer->body, "OUTCOME_UNKNOWN");
}

/* The answer names the message, also if it repeats that of an earlier send. */
static void read_message_id(const struct sent *sent, char out[UUID_SIZE])
{
	const struct slice body = answer_of(sent)->body;
	const struct slice name = SLICE("\"messageId\":\"");
	const char *found = memmem(body.data, body.len, name.data, name.len);

	assert_non_null(found);
	memcpy(out, found + name.len, UUID_SIZE - 1);
	out[UUID_SIZE - 1] = '\0';
}

static void check_queued(const struct storm *storm, const struct sent *sent)
{
	const struct storm_message *message;
	char id[UUID_SIZE];

	read_message_id(sent, id);
	message = storm_bus_find(&storm->bus, id);
	if (!message || !message->is_confirmed)
		fail_msg("a send of %s was answered 200, but the bus has not confirmed %s",
			storm_users[sent->user], id);
}

/* Sends with the same key share a message, so another one of them may have put it on the bus. */
static void check_send(const struct storm *storm, const struct sent *sent)
{
	if (answer_of(sent)->http_status == 200)
		check_queued(storm, sent);
	else if (says_nothing_changed(sent) && sent->key[0] == '\0' &&
		 storm_bus_find(&storm->bus, sent->command.message_id))
		fail_msg("a send of %s was answered %d, but its message %s is on the bus",
			storm_users[sent->user], answer_of(sent)->http_status,
			sent->command.message_id);
}

static void check_answers(const struct storm *storm)
{
	for (size_t i = 0; i < storm->sent_count; i++) {
		const struct sent *sent = &storm->sent[i];

		assert_int_equal(sent->answers, 1);
		if (sent->command.verb == GATEWAY_SEND)
			check_send(storm, sent);
	}
}

static void check_windows(const struct storm *storm)
{
	for (size_t i = 0; i < storm->bus.message_count; i++) {
		const struct storm_message *message = &storm->bus.messages[i];

		if (storm_bus_count_in_window(&storm->bus, message) > (size_t)storm->rate_limit)
			fail_msg("more than %d messages of %s have the window-start %s",
				storm->rate_limit, message->user, message->window);
	}
}

static int count_takes(const struct storm *storm, size_t user)
{
	int count = 0;

	for (size_t i = 0; i < storm->sent_count; i++)
		count += storm->sent[i].command.verb == GATEWAY_TAKE &&
			 storm->sent[i].user == user &&
			 answer_of(&storm->sent[i])->http_status == 200;
	return count;
}

static int count_messages(const struct storm *storm, size_t user, bool confirmed_only)
{
	int count = 0;

	for (size_t i = 0; i < storm->bus.message_count; i++)
		count += strcmp(storm->bus.messages[i].user, storm_users[user]) == 0 &&
			 (storm->bus.messages[i].is_confirmed || !confirmed_only);
	return count;
}

static void check_row(const struct storm *storm, size_t user)
{
	struct limit_row row =
		faulty_store_get_limit(storm->limits.store, slice_of(storm_users[user]));
	int takes = count_takes(storm, user);

	if (row.exists)
		storm_limits_check_row(&row);
	if (!storm->is_gentle)
		return;
	assert_true(row.exists);
	assert_int_equal(row.current_count, count_messages(storm, user, true) + takes);
	assert_int_equal(row.reserved_count, count_messages(storm, user, false) + takes);
}

static bool was_queued(const struct storm *storm, const struct storm_message *message)
{
	char id[UUID_SIZE];

	for (size_t i = 0; i < storm->sent_count; i++) {
		const struct sent *sent = &storm->sent[i];

		if (sent->command.verb != GATEWAY_SEND || answer_of(sent)->http_status != 200)
			continue;
		read_message_id(sent, id);
		if (strcmp(id, message->id) == 0)
			return true;
	}
	return false;
}

/* Unless the end of its effect could not be recorded. */
static void check_confirmed(const struct storm *storm)
{
	for (size_t i = 0; i < storm->bus.message_count && storm->is_gentle; i++) {
		const struct storm_message *message = &storm->bus.messages[i];

		if (message->is_confirmed && !was_queued(storm, message))
			fail_msg("the bus confirmed %s, but no send of %s was answered 200",
				message->id, message->user);
	}
}

static void run_storm(uint64_t seed, bool is_gentle)
{
	struct storm *storm = storm_new(seed, is_gentle);

	configure_users(storm);
	committer_start(storm->committer);
	while (storm->sent_count < COMMANDS - LAST_COMMANDS)
		send_burst(storm);
	end_storm(storm);
	check_answers(storm);
	check_confirmed(storm);
	check_windows(storm);
	for (size_t user = 0; user < STORM_USERS; user++)
		check_row(storm, user);
	storm_free(storm);
}

static void run_wild_storm(uint64_t seed)
{
	run_storm(seed, false);
}

static void run_gentle_storm(uint64_t seed)
{
	run_storm(seed, true);
}

/* ---- the tests --------------------------------------------------------------------------- */

static void in_every_storm_each_answer_is_true_and_no_window_has_too_many(void **state)
{
	(void)state;
	seeds_run(8, 600, run_wild_storm);
}

static void if_transactions_may_run_again_rows_count_exactly_what_is_on_the_bus(void **state)
{
	(void)state;
	seeds_run(8, 300, run_gentle_storm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_random_test(in_every_storm_each_answer_is_true_and_no_window_has_too_many),
		cmocka_random_test(
			if_transactions_may_run_again_rows_count_exactly_what_is_on_the_bus),
	};

	return cmocka_run_group_tests_name("gateway_storm", tests, NULL, NULL);
}

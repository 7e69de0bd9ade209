/*
 * What ports/outbound_repository.h promises, on one engine, with its dead letters; what it claims
 * like others is in claim_contract.c.
 */
#include "base/uuid.h"
#include "engine.h"
#include "services/gateway/gateway.h"
#include "services/gateway/sender.h"

#define SECOND_US 1000000LL
#define START_US 1767855000123456LL

static struct outbound_message message_of(struct engine *engine, const char *name)
{
	return (struct outbound_message){
		.id = engine_uuid(engine, name),
		.message_id = engine_name(engine, name),
		.user_id = engine_name(engine, "user"),
		.trace = slice_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		.created_us = START_US,
		.payload = slice_of("{\"message\":\"Hello!\"}"),
	};
}

static void put(struct engine *engine, struct outbound_message *messages, size_t count)
{
	engine_begin(engine->session);
	assert_int_equal(
		engine->outbound->ops->put(engine->outbound, engine->session, messages, count),
		STATUS_OK);
	engine_commit(engine->session);
}

static struct slice put_one(struct engine *engine, const char *name)
{
	struct outbound_message message = message_of(engine, name);

	put(engine, &message, 1);
	assert_true(message.is_new);
	return message.id;
}

static struct outbound_message find(struct engine *engine, struct slice id)
{
	struct outbound_message message = {.id = id, .exists = true};

	assert_int_equal(engine->outbound->ops->find(engine->outbound,
				 engine_session(engine, SESSION_READ), &engine->arena, &message),
		STATUS_OK);
	return message;
}

/* ---- rows -------------------------------------------------------------------------------- */

static void what_is_put_is_found(void **state)
{
	struct engine *engine = *state;
	struct outbound_message got = find(engine, put_one(engine, "a"));

	assert_true(got.exists);
	assert_true(slice_equal(got.message_id, engine_name(engine, "a")));
	assert_true(slice_equal(got.user_id, engine_name(engine, "user")));
	assert_true(slice_is(got.status, "PENDING"));
	assert_true(got.created_us == START_US);
	assert_int_equal(got.attempt_count, 0);
	assert_int_equal(got.error.len, 0);
	assert_true(got.sent_us == 0);
	assert_false(find(engine, engine_uuid(engine, "b")).exists);
	assert_false(find(engine, slice_of("no uuid")).exists);
}

static void a_message_is_new_once(void **state)
{
	struct engine *engine = *state;
	struct outbound_message messages[4] = {message_of(engine, "a"), message_of(engine, "b"),
		message_of(engine, "c"), message_of(engine, "d")};

	put_one(engine, "b");
	put_one(engine, "d");
	messages[1].is_new = messages[3].is_new = true;
	messages[1].payload = slice_of("another");
	put(engine, messages, 4);
	assert_true(messages[0].is_new);
	assert_false(messages[1].is_new);
	assert_true(messages[2].is_new);
	assert_false(messages[3].is_new);
	assert_int_equal(engine_count(engine, "outbound_messages WHERE id = '%s' AND payload <> %s",
				 messages[1].id.data,
				 engine_is_a_server() ? "'another'" : "CAST('another' AS BLOB)"),
		1);
}

static void what_was_taken_is_known(void **state)
{
	struct engine *engine = *state;
	struct outbound_message messages[3] = {
		message_of(engine, "a"), message_of(engine, "b"), message_of(engine, "c")};

	put_one(engine, "b");
	messages[0].exists = true;
	engine_begin(engine->session);
	assert_int_equal(
		engine->outbound->ops->know(engine->outbound, engine->session, messages, 3),
		STATUS_OK);
	engine_commit(engine->session);
	assert_false(messages[0].exists);
	assert_true(messages[1].exists);
	assert_false(messages[2].exists);
}

static void a_rolled_back_put_leaves_nothing(void **state)
{
	struct engine *engine = *state;
	struct outbound_message message = message_of(engine, "a");

	engine_begin(engine->session);
	assert_int_equal(engine->outbound->ops->put(engine->outbound, engine->session, &message, 1),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_false(find(engine, message.id).exists);
}

/* ---- sending ----------------------------------------------------------------------------- */

/* Claims everything that is due and ends the one with this id; all others are returned. */
static void end(struct engine *engine, struct slice id, enum claim_end how)
{
	const struct claim_repository *claims = engine->outbound->claims;
	struct claim_terms terms = {
		.owner = slice_of("me"), .lease_us = 30 * SECOND_US, .max = 100};
	struct claim got[100];
	size_t count;

	engine_begin(engine->session);
	assert_int_equal(
		claims->ops->claim(claims, engine->session, &engine->arena, &terms, got, &count),
		STATUS_OK);
	for (size_t i = 0; i < count; i++) {
		got[i].end = slice_equal(got[i].id, id) ? how : CLAIM_RETURNED;
		got[i].error = slice_of("no route to host");
		got[i].delay_us = SECOND_US;
	}
	assert_int_equal(
		claims->ops->end(claims, engine->session, terms.owner, got, count), STATUS_OK);
	engine_commit(engine->session);
}

static void a_claim_carries_the_user_and_what_is_sent(void **state)
{
	struct engine *engine = *state;
	const struct claim_repository *claims = engine->outbound->claims;
	struct claim_terms terms = {
		.owner = slice_of("me"), .lease_us = 30 * SECOND_US, .max = 100};
	struct claim got[100];
	size_t count, ours = 0;
	struct slice id = put_one(engine, "a");

	engine_begin(engine->session);
	assert_int_equal(
		claims->ops->claim(claims, engine->session, &engine->arena, &terms, got, &count),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	for (size_t i = 0; i < count; i++) {
		if (!slice_equal(got[i].id, id))
			continue;
		ours++;
		assert_true(slice_is(got[i].type, "sms"));
		assert_true(slice_equal(got[i].key, engine_name(engine, "user")));
		assert_true(slice_is(got[i].payload, "{\"message\":\"Hello!\"}"));
		assert_true(slice_starts_with(got[i].trace, "00-0af7"));
	}
	assert_int_equal(ours, 1);
}

static void find_shows_what_became_of_it(void **state)
{
	struct engine *engine = *state;
	struct slice sent = put_one(engine, "a"), retried = put_one(engine, "b");
	struct outbound_message got;

	end(engine, sent, CLAIM_DONE);
	got = find(engine, sent);
	assert_true(slice_is(got.status, "SENT"));
	assert_true(got.sent_us >= got.taken_us && got.taken_us > START_US);
	assert_int_equal(got.error.len, 0);
	end(engine, retried, CLAIM_RETRY);
	got = find(engine, retried);
	assert_true(slice_is(got.status, "PENDING"));
	assert_int_equal(got.attempt_count, 1);
	assert_true(slice_is(got.error, "no route to host"));
	assert_true(got.sent_us == 0);
}

/* ---- dead letters ------------------------------------------------------------------------ */

static void put_letter(struct engine *engine, struct slice id, const char *error)
{
	const struct dead_letter letter = {
		.id = id,
		.kind = slice_of("sms"),
		.type = slice_of("sms"),
		.key = engine_name(engine, "user"),
		.error = slice_of(error),
		.payload = slice_of("{\"message\":\"Hello!\"}"),
		.attempt_count = 10,
	};

	engine_begin(engine->session);
	assert_int_equal(engine->outbound->dead->ops->put(
				 engine->outbound->dead, engine->session, &letter, 1),
		STATUS_OK);
	engine_commit(engine->session);
}

static int64_t depth(struct engine *engine, const char *kind)
{
	const struct dead_letter_repository *dead = engine->outbound->dead;
	int64_t count = -1;

	assert_int_equal(dead->ops->depth(dead, engine_session(engine, SESSION_READ),
				 slice_of(kind), &count),
		STATUS_OK);
	return count;
}

/* A message that has failed, with its letter. */
static struct slice give_up(struct engine *engine, const char *name)
{
	struct slice id = put_one(engine, name);

	end(engine, id, CLAIM_FAILED);
	put_letter(engine, id, "no route to host");
	return id;
}

static bool find_letter(struct engine *engine, struct slice id, struct dead_letter *got)
{
	const struct dead_letter_name name = {slice_of("sms"), id};
	bool found = false;

	assert_int_equal(engine->outbound->dead->ops->find(engine->outbound->dead, engine->session,
				 &engine->arena, &name, got, &found),
		STATUS_OK);
	return found;
}

static bool resolve(struct engine *engine, struct slice id, enum dead_letter_action action)
{
	const struct dead_letter_resolution resolution = {
		{slice_of("sms"), id}, action, slice_of("why not"), slice_of("ops")};
	bool found = false;

	engine_begin(engine->session);
	assert_int_equal(engine->outbound->dead->ops->resolve(
				 engine->outbound->dead, engine->session, &resolution, &found),
		STATUS_OK);
	engine_commit(engine->session);
	return found;
}

static void a_replayed_message_is_pending_and_can_be_given_up_again(void **state)
{
	struct engine *engine = *state;
	struct slice id = give_up(engine, "a");
	struct outbound_message message;
	struct dead_letter got;

	assert_true(find_letter(engine, id, &got));
	assert_true(slice_is(got.error, "no route to host"));
	assert_true(slice_is(got.payload, "{\"message\":\"Hello!\"}"));
	message = find(engine, id);
	assert_true(slice_is(message.status, "FAILED"));
	assert_int_equal(message.attempt_count, 1);
	assert_true(resolve(engine, id, DEAD_LETTER_REPLAY));
	assert_false(resolve(engine, id, DEAD_LETTER_REPLAY));
	assert_false(find_letter(engine, id, &got));
	message = find(engine, id);
	assert_true(slice_is(message.status, "PENDING"));
	assert_int_equal(message.attempt_count, 0);
	end(engine, id, CLAIM_FAILED);
	put_letter(engine, id, "still no route");
	assert_true(find_letter(engine, id, &got));
	assert_true(slice_is(got.error, "still no route"));
}

static void a_discarded_message_is_let_go(void **state)
{
	struct engine *engine = *state;
	struct slice id = give_up(engine, "a");
	struct dead_letter got;

	assert_true(resolve(engine, id, DEAD_LETTER_DISCARD));
	assert_true(slice_is(find(engine, id).status, "DISCARDED"));
	assert_false(find_letter(engine, id, &got));
	assert_false(resolve(engine, id, DEAD_LETTER_REPLAY));
	assert_false(resolve(engine, slice_of("no uuid"), DEAD_LETTER_DISCARD));
}

static void a_message_that_was_swept_can_be_discarded_but_not_replayed(void **state)
{
	struct engine *engine = *state;
	struct slice id = give_up(engine, "a");
	size_t deleted = 0;

	assert_int_equal(engine->outbound->claims->ops->sweep(engine->outbound->claims,
				 engine->session, -SECOND_US, 1000, &deleted),
		STATUS_OK);
	assert_true(deleted >= 1);
	assert_false(find(engine, id).exists);
	assert_false(resolve(engine, id, DEAD_LETTER_REPLAY));
	assert_true(resolve(engine, id, DEAD_LETTER_DISCARD));
}

static void letters_that_wait_are_counted(void **state)
{
	struct engine *engine = *state;
	int64_t before = depth(engine, "sms");
	struct slice id = give_up(engine, "a");

	give_up(engine, "b");
	assert_true(depth(engine, "sms") == before + 2);
	assert_true(depth(engine, "") == before + 2);
	assert_true(depth(engine, "poison") == 0);
	assert_true(resolve(engine, id, DEAD_LETTER_DISCARD));
	assert_true(depth(engine, "sms") == before + 1);
}

/* ---- what is only published -------------------------------------------------------------- */

static void note(struct engine *engine, struct slice id)
{
	const struct outbound_message message = {
		.id = id, .user_id = engine_name(engine, "user"), .created_us = START_US};

	engine_begin(engine->session);
	assert_int_equal(
		engine->outbound->ops->note(engine->outbound, engine->session, &message, 1),
		STATUS_OK);
	engine_commit(engine->session);
}

static size_t sweep_queued(struct engine *engine, int64_t age_us)
{
	size_t deleted = 77;

	assert_int_equal(engine->outbound->ops->sweep_queued(
				 engine->outbound, engine->session, age_us, 1000, &deleted),
		STATUS_OK);
	return deleted;
}

static void a_published_message_is_queued_until_the_sender_takes_it(void **state)
{
	struct engine *engine = *state;
	struct slice id = engine_uuid(engine, "a");
	struct outbound_message got;

	note(engine, id);
	note(engine, id); /* once more is harmless */
	got = find(engine, id);
	assert_true(got.exists && slice_is(got.status, "QUEUED"));
	assert_true(slice_equal(got.user_id, engine_name(engine, "user")));
	assert_true(got.created_us == START_US);
	assert_true(got.taken_us == 0 && got.sent_us == 0);
	assert_int_equal(got.error.len, 0);
	put_one(engine, "a");
	assert_true(slice_is(find(engine, id).status, "PENDING"));
	assert_int_equal(engine_count(engine, "queued_messages WHERE id = '%s'", id.data), 0);
}

static void a_message_that_the_sender_took_first_is_not_queued_again(void **state)
{
	struct engine *engine = *state;
	struct slice id = put_one(engine, "a");

	end(engine, id, CLAIM_DONE);
	note(engine, id);
	assert_true(slice_is(find(engine, id).status, "SENT"));
	assert_int_equal(engine_count(engine, "queued_messages WHERE id = '%s'", id.data), 0);
}

/* Between two sessions of PostgreSQL, neither of which sees the other's row. */
static void a_message_that_is_queued_and_taken_at_once_is_shown_as_taken_and_swept(void **state)
{
	struct engine *engine = *state;
	struct slice id = put_one(engine, "a");

	if (!engine_is_a_server())
		return;
	engine_execute(
		engine, "INSERT INTO queued_messages VALUES ('%s', 'user', quipu_now())", id.data);
	assert_true(slice_is(find(engine, id).status, "PENDING"));
	assert_true(sweep_queued(engine, 3600 * SECOND_US) >= 1);
	assert_int_equal(engine_count(engine, "queued_messages WHERE id = '%s'", id.data), 0);
}

static void a_message_that_nobody_takes_is_forgotten_after_its_time(void **state)
{
	struct engine *engine = *state;
	struct slice id = engine_uuid(engine, "a");

	note(engine, id);
	sweep_queued(engine, 100LL * 365 * 24 * 3600 * SECOND_US);
	assert_true(find(engine, id).exists);
	assert_true(sweep_queued(engine, -SECOND_US) >= 1);
	assert_false(find(engine, id).exists);
}

/* ---- an erasure while the sender takes a message ------------------------------------------ */

/* Erases the user, in another session, after one of the calls of find(). */
struct erasing_sent {
	struct sent_repository base;
	struct engine *engine;
	int *calls_left; /* how many calls of find() are left until then */
};

/* Returns how many rows it has erased. */
static int64_t erase_step(struct engine *engine)
{
	const struct eraser *eraser = engine->limits->eraser;
	struct erasure erasure = {
		.user_id = engine_name(engine, "user"),
		.pseudonym = engine_name(engine, "erased"),
		.limit = 1000,
	};
	int64_t rows = 0;

	engine_begin(engine->session);
	assert_int_equal(eraser->ops->erase(eraser, engine->session, &erasure), STATUS_OK);
	engine_commit(engine->session);
	for (size_t i = 0; i < eraser->place_count; i++)
		rows += erasure.rows[i];
	return rows;
}

static enum status find_and_erase(const struct sent_repository *repository, struct session *session,
	struct sent_message *messages, size_t count)
{
	const struct erasing_sent *erasing = (const struct erasing_sent *)repository;
	struct engine *engine = erasing->engine;
	enum status status = engine->sent->ops->find(engine->sent, session, messages, count);

	if (--*erasing->calls_left == 0) {
		assert_int_equal(erase_step(engine), 1);
		assert_int_equal(erase_step(engine), 0);
	}
	return status;
}

static const struct sent_repository_ops erasing_ops = {.find = find_and_erase};

/* Its messageId is `message_id`, if that is not empty. */
static struct slice event_of(struct engine *engine, struct slice message_id)
{
	struct buffer event = buffer_make(&engine->arena, 256);

	buffer_char(&event, '{');
	if (message_id.len > 0)
		buffer_member(&event, "messageId", message_id);
	buffer_member(&event, "userId", engine_name(engine, "user"));
	buffer_member(&event, "message", slice_of("Hello!"));
	buffer_char(&event, '}');
	return buffer_slice(&event);
}

/* Lets the sender take the delivery, as an intake does it. Returns how many attempts that took. */
static int take(struct engine *engine, struct sender *sender, const struct bus_delivery *delivery)
{
	struct session *session = engine_session(engine, SESSION_WRITE);
	struct intake_item item = {.delivery = delivery};
	struct intake_batch batch = {.items = &item, .count = 1, .arena = &engine->arena};
	enum status status = STATUS_RERUN;
	size_t repeated = 0;
	int attempts = 0;

	while (status == STATUS_RERUN) {
		assert_true(++attempts < 10);
		engine_begin(session);
		status = sender_apply(sender, session, &batch, &repeated);
	}
	assert_int_equal(status, STATUS_OK);
	engine_commit(session);
	assert_null(item.poison);
	assert_int_equal(repeated, 1);
	return attempts;
}

/* Lets the sender take the delivery. Its user is erased after the given call of find(). Returns how
 * many attempts that took. */
static int take_while_erased(
	struct engine *engine, const struct bus_delivery *delivery, int erased_after)
{
	struct erasing_sent sent = {{&erasing_ops}, engine, &erased_after};
	struct sender sender = {.repository = engine->outbound, .sent = &sent.base};
	int attempts = take(engine, &sender, delivery);

	assert_true(erased_after <= 0);
	assert_int_equal(engine_count(engine, "outbound_messages WHERE aggregate_key = '%s'",
				 engine_name(engine, "user").data),
		0);
	return attempts;
}

/* Only between two sessions of PostgreSQL: on SQLite an erasure waits for the sender. */
static void a_queued_message_that_is_erased_while_it_is_taken_is_not_sent(void **state)
{
	struct engine *engine = *state;
	struct slice id = engine_uuid(engine, "a");
	struct bus_delivery delivery = {.value = event_of(engine, id)};

	if (!engine_is_a_server())
		return;
	note(engine, id);
	assert_int_equal(take_while_erased(engine, &delivery, 1), 2);
}

static void a_repeated_message_that_is_erased_while_it_is_taken_is_not_sent_again(void **state)
{
	struct engine *engine = *state;
	struct outbound_message message = message_of(engine, "a");
	struct bus_delivery delivery = {.value = event_of(engine, message.id)};

	if (!engine_is_a_server())
		return;
	message.message_id = message.id;
	put(engine, &message, 1);
	end(engine, message.id, CLAIM_DONE);
	assert_int_equal(take_while_erased(engine, &delivery, 1), 2);
}

/* The sender looks for the former id of a message without messageId in a second call of find(). */
static void a_message_with_a_former_id_that_is_erased_while_it_is_taken_is_not_sent_again(
	void **state)
{
	struct engine *engine = *state;
	struct outbound_message message = message_of(engine, "position");
	struct bus_delivery delivery = {.value = event_of(engine, slice_of("")),
		.position = message.message_id,
		.identity = engine_name(engine, "identity")};
	struct buffer name = buffer_make(&engine->arena, 64);
	char id[UUID_SIZE];

	if (!engine_is_a_server())
		return;
	buffer_add(&name, slice_make(GATEWAY_CHANNEL, sizeof(GATEWAY_CHANNEL)));
	buffer_add(&name, message.message_id);
	uuid_of_name(buffer_slice(&name), id);
	message.id = slice_of(id);
	put(engine, &message, 1);
	assert_int_equal(take_while_erased(engine, &delivery, 2), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(what_is_put_is_found),
		ENGINE_TEST(a_message_is_new_once),
		ENGINE_TEST(what_was_taken_is_known),
		ENGINE_TEST(a_rolled_back_put_leaves_nothing),
		ENGINE_TEST(a_claim_carries_the_user_and_what_is_sent),
		ENGINE_TEST(find_shows_what_became_of_it),
		ENGINE_TEST(a_replayed_message_is_pending_and_can_be_given_up_again),
		ENGINE_TEST(a_discarded_message_is_let_go),
		ENGINE_TEST(a_message_that_was_swept_can_be_discarded_but_not_replayed),
		ENGINE_TEST(letters_that_wait_are_counted),
		ENGINE_TEST(a_published_message_is_queued_until_the_sender_takes_it),
		ENGINE_TEST(a_message_that_the_sender_took_first_is_not_queued_again),
		ENGINE_TEST(a_message_that_is_queued_and_taken_at_once_is_shown_as_taken_and_swept),
		ENGINE_TEST(a_message_that_nobody_takes_is_forgotten_after_its_time),
		ENGINE_TEST(a_queued_message_that_is_erased_while_it_is_taken_is_not_sent),
		ENGINE_TEST(a_repeated_message_that_is_erased_while_it_is_taken_is_not_sent_again),
		ENGINE_TEST(
			a_message_with_a_former_id_that_is_erased_while_it_is_taken_is_not_sent_again),
	};

	return cmocka_run_group_tests_name("outbound messages", tests, NULL, NULL);
}

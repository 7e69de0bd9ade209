/*
 * The sources of entitlements: how they are stored, and that batches of the service on this engine
 * do what single changes would. Part of entitlement_repository_contract.
 */
#include <pthread.h>
#include <stdio.h>

#include "check.h"
#include "engine.h"
#include "entitlement_contract.h"
#include "entitlement_model.h"

#define START_US 1767855000123456LL
#define MODEL_BATCHES 60

static struct entitlement_row row_of(struct engine *engine, const char *user, bool exists)
{
	return (struct entitlement_row){
		.user_id = engine_name(engine, user),
		.unit = slice_of("unit"),
		.exists = exists,
		.is_active = true,
		.version = 1,
		.updated_us = START_US,
	};
}

static struct entitlement_source source_of(
	const struct entitlement_row *row, const char *kind, const char *id)
{
	return (struct entitlement_source){
		.user_id = row->user_id,
		.unit = row->unit,
		.kind = slice_of(kind),
		.id = slice_of(id),
		.is_active = true,
		.reason = slice_of("gift"),
		.granted_us = START_US,
	};
}

static void put(struct engine *engine, const struct entitlement_row *row,
	const struct entitlement_source *sources, size_t count)
{
	struct entitlement_changes changes = {
		.rows = row, .row_count = 1, .sources = sources, .source_count = count};

	engine_begin(engine->session);
	assert_int_equal(
		engine->entitlements->ops->put(engine->entitlements, engine->session, &changes),
		STATUS_OK);
	engine_commit(engine->session);
}

static void find(struct engine *engine, struct entitlement_row *row,
	struct entitlement_source *sources, size_t count)
{
	engine_begin(engine->session);
	assert_int_equal(engine->entitlements->ops->find_sources(
				 engine->entitlements, engine->session, row, 1, sources, count),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
}

static void look_at_most(
	struct engine *engine, struct entitlement_look *looks, size_t count, size_t source_max)
{
	struct session *session = engine_session(engine, SESSION_READ);

	assert_int_equal(engine->entitlements->ops->look(engine->entitlements, session,
				 &engine->arena, looks, count, source_max),
		STATUS_OK);
}

static void look(struct engine *engine, struct entitlement_look *looks, size_t count)
{
	look_at_most(engine, looks, count, 1000);
}

/* ---- stored sources ---------------------------------------------------------------------- */

static void sources_that_are_put_are_found_and_counted(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row row = row_of(engine, "a", false), other = row_of(engine, "b", false);
	struct entitlement_source put_sources[] = {source_of(&row, "purchase", "p1"),
		source_of(&row, "purchase", "p2"), source_of(&row, "reason", "p1")};
	struct entitlement_source found[] = {source_of(&row, "purchase", "p1"),
		source_of(&row, "purchase", "p2"), source_of(&row, "purchase", "p3"),
		source_of(&row, "reason", "p1")};

	put_sources[1].is_active = false;
	put_sources[1].revoked_us = START_US + 7;
	put(engine, &row, put_sources, 3);
	put(engine, &other, NULL, 0);
	found[2].exists = true;
	find(engine, &row, found, 4);
	assert_int_equal(row.source_count, 3);
	assert_int_equal(row.active_count, 2);
	assert_true(found[0].exists && found[0].is_active && found[0].granted_us == START_US);
	assert_true(found[1].exists && !found[1].is_active);
	assert_true(found[1].revoked_us == START_US + 7);
	assert_false(found[2].exists);
	assert_true(found[3].exists && found[3].is_active);
	find(engine, &other, NULL, 0);
	assert_int_equal(other.source_count + other.active_count, 0);
}

static void a_source_that_is_put_again_keeps_its_reason(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row row = row_of(engine, "a", false);
	struct entitlement_source source = source_of(&row, "purchase", "p1");
	struct entitlement_look one = {.row = row};

	put(engine, &row, &source, 1);
	row.exists = true;
	source.exists = true;
	source.is_active = false;
	source.revoked_us = START_US + 9;
	source.reason = slice_of("");
	put(engine, &row, &source, 1);
	look(engine, &one, 1);
	assert_int_equal(one.source_count, 1);
	assert_slice(one.sources[0].reason, "gift");
	assert_false(one.sources[0].is_active);
	assert_true(one.sources[0].revoked_us == START_US + 9);
}

static void all_sources_end_before_the_given_ones_are_written(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row row = row_of(engine, "a", false), other = row_of(engine, "b", false);
	struct entitlement_source sources[] = {source_of(&row, "purchase", "p1"),
		source_of(&row, "purchase", "p2"), source_of(&row, "reason", "r")};
	struct entitlement_source theirs = source_of(&other, "purchase", "p1");

	put(engine, &row, sources, 3);
	put(engine, &other, &theirs, 1);
	row.exists = true;
	sources[2].exists = true;
	row.ends_sources = true;
	row.updated_us = START_US + 5;
	put(engine, &row, &sources[2], 1);
	find(engine, &row, sources, 3);
	assert_int_equal(row.active_count, 1);
	assert_true(!sources[0].is_active && sources[0].revoked_us == START_US + 5);
	assert_true(!sources[1].is_active && sources[1].revoked_us == START_US + 5);
	assert_true(sources[2].is_active);
	find(engine, &other, &theirs, 1);
	assert_true(theirs.is_active);
}

static void a_look_has_the_active_sources_first_and_the_newest_before_older_ones(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row row = row_of(engine, "a", false), bare = row_of(engine, "b", false);
	struct entitlement_source sources[] = {source_of(&row, "purchase", "p1"),
		source_of(&row, "purchase", "p2"), source_of(&row, "purchase", "p3"),
		source_of(&row, "reason", "r")};
	struct entitlement_look looks[] = {
		{.row = bare}, {.row = row}, {.row = row_of(engine, "nobody", true)}, {.row = row}};

	sources[0].is_active = false;
	sources[0].granted_us = START_US + 9;
	sources[0].revoked_us = START_US + 10;
	sources[2].granted_us = START_US + 2;
	row.step = 3;
	put(engine, &row, sources, 4);
	put(engine, &bare, NULL, 0);
	look(engine, looks, 4);
	assert_true(looks[0].row.exists && looks[0].source_count == 0);
	assert_false(looks[2].row.exists);
	for (size_t i = 1; i < 4; i += 2) {
		assert_true(looks[i].row.exists && looks[i].row.version == 1);
		assert_true(looks[i].row.step == 3);
		assert_int_equal(looks[i].source_count, 4);
		assert_slice(looks[i].sources[0].id, "p3");
		assert_slice(looks[i].sources[1].id, "p2");
		assert_slice(looks[i].sources[2].id, "r");
		assert_slice(looks[i].sources[3].id, "p1");
		assert_slice(looks[i].sources[3].kind, "purchase");
		assert_true(looks[i].sources[3].revoked_us == START_US + 10);
		assert_true(looks[i].sources[0].revoked_us == 0);
	}
}

static void a_look_has_the_first_sources_up_to_a_limit(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row row = row_of(engine, "a", false), other = row_of(engine, "b", false);
	struct entitlement_source sources[] = {source_of(&row, "purchase", "p1"),
		source_of(&row, "purchase", "p2"), source_of(&row, "purchase", "p3")};
	struct entitlement_source theirs = source_of(&other, "purchase", "p1");
	struct entitlement_look looks[] = {{.row = row}, {.row = other}};

	sources[2].granted_us = START_US + 2;
	put(engine, &row, sources, 3);
	put(engine, &other, &theirs, 1);
	look_at_most(engine, looks, 2, 2);
	assert_int_equal(looks[0].source_count, 2);
	assert_slice(looks[0].sources[0].id, "p3");
	assert_slice(looks[0].sources[1].id, "p1");
	assert_int_equal(looks[1].source_count, 1);
}

/* ---- batches of the service -------------------------------------------------------------- */

static struct entitlements service_of(struct engine *engine)
{
	return (struct entitlements){.repository = engine->entitlements, .outbox = engine->outbox};
}

static void random_batches_do_what_single_changes_would(void **state)
{
	struct engine *engine = *state;
	struct entitlements entitlements = service_of(engine);
	struct session *reader = engine_session(engine, SESSION_READ);
	struct entitlement_model model;
	int64_t lines = 0;

	entitlement_model_init(&model, &engine->arena, engine->prefix, 7);
	engine_begin(engine->session);
	entitlement_model_migrate(&model, engine->entitlements, engine->session);
	engine_commit(engine->session);
	for (int i = 0; i < MODEL_BATCHES; i++) {
		engine_begin(engine->session);
		entitlement_model_run(&model, &entitlements, engine->session);
		engine_commit(engine->session);
		entitlement_model_compare(&model, engine->entitlements, reader);
	}
	for (size_t i = 0; i < MODEL_PAIRS; i++)
		lines += model.pairs[i].line_count;
	assert_int_equal(
		engine_count(engine, "entitlement_audit WHERE user_id LIKE '%s%%'", engine->prefix),
		lines);
	assert_int_equal(
		engine_count(engine,
			"entitlement_audit WHERE user_id LIKE '%s%%' AND event_id IS NOT NULL",
			engine->prefix),
		model.event_count);
}

/* Grants one entitlement from `count` reasons that begin with `word`, in one batch. */
static enum status grant_many(struct engine *engine, struct session *session, const char *word,
	size_t count, struct answer *last)
{
	struct entitlements entitlements = service_of(engine);
	struct arena arena;
	struct entitlement_command **commands;
	struct write_batch batch = {.count = count, .arena = &arena};
	enum status status;

	arena_init(&arena, 65536);
	batch.writes = arena_array(&arena, struct write *, count);
	commands = arena_array(&arena, struct entitlement_command *, count);
	for (size_t i = 0; i < count; i++) {
		struct buffer reason = buffer_make(&arena, 32);

		buffer_format(&reason, "%s%zu", word, i);
		commands[i] = entitlement_command_new(&arena);
		commands[i]->is_grant = true;
		commands[i]->user_id = slice_of(engine->prefix);
		commands[i]->unit = slice_of("unit");
		commands[i]->reason = buffer_slice(&reason);
		commands[i]->write.command.arena = &arena;
		commands[i]->write.command.key =
			entitlement_lane_key(&arena, commands[i]->user_id, commands[i]->unit);
		commands[i]->write.position = i;
		batch.writes[i] = &commands[i]->write;
	}
	status = entitlement_batch_decide(&entitlements, session, &batch);
	if (status == STATUS_OK && last) {
		*last = commands[count - 1]->write.command.answer;
		last->body = arena_copy(&engine->arena, last->body);
	}
	arena_release(&arena);
	return status;
}

static void the_number_of_sources_is_bounded(void **state)
{
	struct engine *engine = *state;
	struct answer answer = {0};

	for (size_t i = 0; i < 2; i++) {
		engine_begin(engine->session);
		assert_int_equal(grant_many(engine, engine->session, i == 0 ? "a" : "b",
					 ENTITLEMENT_SOURCES_MAX / 2 + i, &answer),
			STATUS_OK);
		engine_commit(engine->session);
	}
	assert_int_equal(answer.http_status, 409);
	assert_contains(answer.body, "ENTITLEMENT_TOO_MANY_SOURCES");
	assert_int_equal(
		engine_count(engine, "entitlement_sources WHERE user_id = '%s'", engine->prefix),
		ENTITLEMENT_SOURCES_MAX);
}

#define ROUNDS 60

struct granter {
	struct engine *engine;
	struct session *session;
	const char *word;
};

static void *grant_often(void *argument)
{
	const struct granter *granter = argument;
	struct session *session = granter->session;

	for (int done = 0; done < ROUNDS;) {
		char word[32];
		enum status status = session->ops->begin(session, TRANSACTION_WAIT);

		snprintf(word, sizeof(word), "%s%d-", granter->word, done);
		if (status == STATUS_OK)
			status = grant_many(granter->engine, session, word, 2, NULL);
		if (status == STATUS_OK)
			status = session->ops->commit(session);
		must(status == STATUS_OK || engine_is_collision(status), "a grant");
		done += status == STATUS_OK;
	}
	return NULL;
}

static void two_sessions_that_grant_the_same_see_each_others_sources(void **state)
{
	struct engine *engine = *state;
	struct granter granters[2] = {{.word = "a"}, {.word = "b"}};
	pthread_t threads[2];
	struct entitlement_look one = {
		.row.user_id = slice_of(engine->prefix), .row.unit = slice_of("unit")};

	for (int i = 0; i < 2; i++) {
		granters[i].engine = engine;
		granters[i].session = engine_session(engine, SESSION_WRITE);
		assert_int_equal(pthread_create(&threads[i], NULL, grant_often, &granters[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	look(engine, &one, 1);
	assert_true(one.row.is_active && one.row.version == 1);
	assert_true(one.row.step == 4 * ROUNDS - 1);
	assert_int_equal(one.source_count, 4 * ROUNDS);
	assert_int_equal(engine_count(engine,
				 "(SELECT DISTINCT version, step FROM entitlement_audit WHERE "
				 "user_id = '%s' AND version = 1) AS lines",
				 engine->prefix),
		4 * ROUNDS);
}

static void owners_of_sources_are_listed_once_whether_they_exist_or_not(void **state)
{
	static const char *const users[] = {"ann", "bob", "eve"};
	struct engine *engine = *state;
	struct session *session = engine_session(engine, SESSION_READ);
	struct row_page page = {.after = {engine_name(engine, "")}, .limit = 1};
	struct source_owner owner;

	for (size_t i = 0; i < 3; i++) {
		struct entitlement_row row = row_of(engine, users[i], false);
		struct entitlement_source sources[] = {
			source_of(&row, "purchase", "p1"), source_of(&row, "purchase", "p2")};

		put(engine, &row, sources, 2);
	}
	engine_execute(engine, "DELETE FROM entitlements WHERE user_id = '%s'",
		engine_name(engine, "bob").data);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(engine->entitlements->ops->list_source_owners(engine->entitlements,
					 session, &engine->arena, &page, &owner),
			STATUS_OK);
		assert_int_equal(page.count, 1);
		assert_true(slice_equal(owner.user_id, engine_name(engine, users[i])));
		assert_true(slice_is(owner.unit, "unit"));
		assert_int_equal(owner.has_row, i != 1);
		page.after[0] = owner.user_id;
		page.after[1] = owner.unit;
	}
}

int entitlement_source_tests(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(sources_that_are_put_are_found_and_counted),
		ENGINE_TEST(a_source_that_is_put_again_keeps_its_reason),
		ENGINE_TEST(all_sources_end_before_the_given_ones_are_written),
		ENGINE_TEST(a_look_has_the_active_sources_first_and_the_newest_before_older_ones),
		ENGINE_TEST(a_look_has_the_first_sources_up_to_a_limit),
		ENGINE_TEST(random_batches_do_what_single_changes_would),
		ENGINE_TEST(the_number_of_sources_is_bounded),
		ENGINE_TEST(two_sessions_that_grant_the_same_see_each_others_sources),
		ENGINE_TEST(owners_of_sources_are_listed_once_whether_they_exist_or_not),
	};

	return cmocka_run_group_tests_name("sources of entitlements", tests, NULL, NULL);
}

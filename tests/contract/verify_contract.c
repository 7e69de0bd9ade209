/*
 * What the lists that `quipu verify` reads promise, on one engine: every row once, page by page, in
 * the order of keys, with what is really in the table. They are read through the verifiers of the
 * services, so that rows made by the ports are right, and rows damaged past them are named.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "engine.h"
#include "events/entitlement_event.h"
#include "services/counts/count_verify.h"
#include "services/entitlements/entitlement_verify.h"
#include "services/entitlements/notification_verify.h"
#include "services/gateway/limit_verify.h"
#include "services/pots/pot_verify.h"

#define HOUR_US (3600LL * 1000000)

/* What a walk through all pages has seen. */
struct walk {
	int64_t checked;
	size_t pages;
	struct buffer told; /* "id what\n" for each difference */
};

static char *take_page(struct walk *walk, struct slice body)
{
	char why[JSON_WHY_SIZE];
	json_t *page = json_parse_object(body, why);
	const json_t *differences = json_object_get(page, "differences");
	const char *next = json_string_value(json_object_get(page, "next"));
	char *after = next ? qp_strdup(next) : NULL;

	assert_non_null(page);
	walk->pages++;
	walk->checked += json_integer_value(json_object_get(page, "checked"));
	for (size_t i = 0; i < json_array_size(differences); i++) {
		const json_t *one = json_array_get(differences, i);

		buffer_format(&walk->told, "%s %s\n", json_string_value(json_object_get(one, "id")),
			json_string_value(json_object_get(one, "what")));
	}
	json_decref(page);
	return after;
}

static struct walk walk_through(
	struct engine *engine, const struct verifier *verifier, size_t limit)
{
	struct session *session = engine_session(engine, SESSION_READ);
	struct walk walk = {.told = buffer_make(&engine->arena, 256)};
	char *after = qp_strdup("");

	while (after) {
		struct buffer body = buffer_make(&engine->arena, 256);
		struct verify_request request = {verifier, slice_of(after), limit};

		assert_int_equal(verify_look(&request, session, &engine->arena, &body), STATUS_OK);
		free(after);
		after = take_page(&walk, buffer_slice(&body));
	}
	buffer_char(&walk.told, '\0');
	return walk;
}

static void assert_told(const struct walk *walk, struct slice id, const char *what)
{
	char line[512];

	snprintf(line, sizeof(line), "%.*s %s\n", (int)id.len, id.data, what);
	if (!strstr(walk->told.data, line))
		fail_msg("missing: %sin:\n%s", line, walk->told.data);
}

/* Of this test: the database may be shared. */
static void assert_nothing_told(const struct walk *walk, struct slice id)
{
	char text[256];

	snprintf(text, sizeof(text), "%.*s", (int)id.len, id.data);
	if (strstr(walk->told.data, text))
		fail_msg("%s is told of in:\n%s", text, walk->told.data);
}

static const char *ahead(struct engine *engine)
{
	return engine_time_is_ours(engine) ? "9000000000000000" : "now() + interval '1 hour'";
}

/* ---- counts and keys --------------------------------------------------------------------- */

static void new_count(struct engine *engine, const char *name)
{
	struct count_edit edit = {.item_id = engine_name(engine, name), .kind = COUNT_INSERT};

	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->edit(engine->counts, engine->session, &edit, 1, HOUR_US),
		STATUS_OK);
	engine_commit(engine->session);
}

static void counts_are_listed_once_whatever_the_size_of_a_page(void **state)
{
	struct engine *engine = *state;
	struct counts counts = {.repository = engine->counts};
	struct verifier verifier = counts_verifier(&counts);
	struct walk whole, small;

	for (int i = 0; i < 7; i++) {
		char name[2] = {(char)('a' + i), '\0'};

		new_count(engine, name);
	}
	whole = walk_through(engine, &verifier, 1000);
	assert_true(whole.checked >= 7);
	assert_nothing_told(&whole, engine_name(engine, ""));
	for (size_t limit = 1; limit < 4; limit++) {
		small = walk_through(engine, &verifier, limit);
		assert_true(small.checked == whole.checked && small.pages > whole.pages);
	}
	engine_execute(engine, "UPDATE count_values SET last_updated_at = %s WHERE item_id = '%s'",
		ahead(engine), engine_name(engine, "c").data);
	small = walk_through(engine, &verifier, 2);
	assert_told(&small, engine_name(engine, "c"), "in-the-future");
	assert_nothing_told(&small, engine_name(engine, "b"));
}

static void put_key(struct engine *engine, const char *scope, const char *name, const char *body)
{
	struct idempotency_record record = {
		.scope = slice_of(scope),
		.key = engine_name(engine, name),
		.answer = {.http_status = 200, .body = slice_of(body)},
	};

	engine_begin(engine->session);
	assert_int_equal(
		engine->session->ops->idempotency_put(engine->session, &record, 1, HOUR_US),
		STATUS_OK);
	engine_commit(engine->session);
}

static struct slice key_id(struct engine *engine, const char *scope, const char *name)
{
	struct buffer id = buffer_make(&engine->arena, 64);

	buffer_text(&id, scope);
	buffer_char(&id, ' ');
	buffer_add(&id, engine_name(engine, name));
	return buffer_slice(&id);
}

static void keys_of_the_asked_scopes_are_listed_and_no_others(void **state)
{
	static const char change[] = "POST /api/v1/counts/{itemId}/reset";
	static const char put[] = "PUT /api/v1/internal/counts/{itemId}";
	struct engine *engine = *state;
	struct counts counts = {.repository = engine->counts};
	struct verifier verifier = counts_verifier(&counts);
	struct walk walk;

	put_key(engine, change, "good", "{\"itemId\":\"a\",\"value\":0}");
	put_key(engine, change, "wrong", "{\"itemId\":\"a\",\"value\":1}");
	put_key(engine, "POST /api/v1/counts/{itemId}/reset key=me", "other", "nonsense");
	put_key(engine, "POST /api/v1/countz", "behind", "nonsense");
	put_key(engine, "POST /api/v1/count", "before", "nonsense");
	put_key(engine, put, "whole",
		"{\"itemId\":\"a\",\"currentValue\":0,\"lastUpdatedAt\":\"2026-01-08T07:10:00Z\"}");
	put_key(engine, put, "partial", "{\"itemId\":\"a\",\"value\":0}");
	put_key(engine, change, "short", "{\"itemId\":\"a\",\"value\":0}");
	engine_execute(engine, "UPDATE idempotency_keys SET status = 500 WHERE key = '%s'",
		engine_name(engine, "short").data);
	walk = walk_through(engine, &verifier, 1);
	assert_told(&walk, key_id(engine, change, "wrong"), "answer");
	assert_told(&walk, key_id(engine, put, "partial"), "answer");
	assert_told(&walk, key_id(engine, change, "short"), "not-kept");
	assert_told(&walk, key_id(engine, "POST /api/v1/counts/{itemId}/reset key=me", "other"),
		"answer");
	assert_nothing_told(&walk, engine_name(engine, "good"));
	assert_nothing_told(&walk, engine_name(engine, "whole"));
	assert_nothing_told(&walk, engine_name(engine, "behind"));
	assert_nothing_told(&walk, engine_name(engine, "before"));
}

/* ---- limits ------------------------------------------------------------------------------ */

static void limits_are_listed_with_what_is_in_the_table(void **state)
{
	struct engine *engine = *state;
	struct gateway gateway = {.repository = engine->limits, .messages = engine->outbound};
	struct verifier verifier = limits_verifier(&gateway);
	struct limit_row rows[3];
	struct walk walk;

	for (int i = 0; i < 3; i++) {
		char name[2] = {(char)('a' + i), '\0'};

		rows[i] = (struct limit_row){.user_id = engine_name(engine, name),
			.rate_limit = 5,
			.time_window = 1,
			.current_count = i,
			.reserved_count = 3 + i,
			.last_refresh_us = HOUR_US};
	}
	engine_begin(engine->session);
	assert_int_equal(
		engine->limits->ops->put(engine->limits, engine->session, rows, 3), STATUS_OK);
	engine_commit(engine->session);
	walk = walk_through(engine, &verifier, 1);
	assert_nothing_told(&walk, engine_name(engine, ""));
	engine_execute(engine, "UPDATE rate_limit_store SET current_count = 5 WHERE user_id = '%s'",
		rows[1].user_id.data);
	engine_execute(engine, "UPDATE rate_limit_store SET rate_limit = 4 WHERE user_id = '%s'",
		rows[2].user_id.data);
	walk = walk_through(engine, &verifier, 2);
	assert_told(&walk, rows[1].user_id, "over-reserved");
	assert_told(&walk, rows[2].user_id, "over-limit");
	assert_nothing_told(&walk, rows[0].user_id);
}

/* ---- pots -------------------------------------------------------------------------------- */

static void pots_are_listed_with_the_sum_of_their_coins(void **state)
{
	struct engine *engine = *state;
	struct pots pots = {.repository = engine->pots};
	struct verifier verifier = pots_verifier(&pots);
	struct pot_row row = {.name = engine_name(engine, "pot"), .max_coins = 10};
	struct pot_lock lock = {.token = "11111111-1111-4111-8111-111111111111", .ttl_us = HOUR_US};
	struct pot_content content = {0};
	struct pot_change change = {.is_changed = {true, true, true}, .coins = {{3, 3, 4}}};
	char id[16];
	struct walk walk;

	engine_begin(engine->session);
	assert_int_equal(
		engine->pots->ops->create(engine->pots, engine->session, &row, 1), STATUS_OK);
	change.pot_id = content.pot_id = row.pot_id;
	assert_int_equal(engine->pots->ops->take(engine->pots, engine->session, &lock, &content, 1),
		STATUS_OK);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &lock, &change, 1),
		STATUS_OK);
	engine_commit(engine->session);
	snprintf(id, sizeof(id), "%d", row.pot_id);
	walk = walk_through(engine, &verifier, 1);
	assert_null(strstr(walk.told.data, " over-max"));
	assert_true(walk.checked >= 4); /* the pot and three rows of coins */
	engine_execute(engine,
		"UPDATE coin SET coin_count = 5 WHERE pot_id = %d AND denomination = 100",
		row.pot_id);
	engine_execute(engine, "UPDATE pot SET lock_expire_time = %s WHERE id = %d", ahead(engine),
		row.pot_id);
	walk = walk_through(engine, &verifier, 2);
	assert_told(&walk, slice_of(id), "over-max");
	assert_told(&walk, slice_of(id), "lock");
}

/* ---- entitlements ------------------------------------------------------------------------ */

static struct slice pack(struct engine *engine, const struct entitlement_audit *line)
{
	struct entitlement_event event = {
		.event_id = line->event_id,
		.event_type = slice_of(line->is_active ? ENTITLEMENT_GRANTED : ENTITLEMENT_REVOKED),
		.occurred_us = line->at_us,
		.user_id = line->user_id,
		.unit = line->unit,
		.version = line->version,
	};

	return entitlement_event_pack(&engine->arena, &event);
}

static struct entitlement_row row_of(const struct entitlement_audit *line)
{
	return (struct entitlement_row){
		.user_id = line->user_id,
		.unit = line->unit,
		.exists = line->version > 1 || line->step > 0,
		.is_active = line->version % 2 != 0,
		.version = line->version,
		.step = line->step,
		.updated_us = line->at_us,
	};
}

/* A source that has been granted and revoked as often as the entitlement. */
static struct entitlement_source source_of(const struct entitlement_audit *line)
{
	return (struct entitlement_source){
		.user_id = line->user_id,
		.unit = line->unit,
		.kind = slice_of(ENTITLEMENT_REASON),
		.id = slice_of("r"),
		.exists = line->version > 1 || line->step > 0,
		.is_active = line->is_active,
		.reason = slice_of("r"),
		.granted_us = line->at_us,
		.revoked_us = line->is_active ? 0 : line->at_us,
	};
}

/* In a transaction. */
static void put_line(struct engine *engine, const struct entitlement_audit *line)
{
	struct entitlement_row row = row_of(line);
	struct entitlement_source source = source_of(line);
	struct entitlement_changes changes = {.rows = &row,
		.row_count = 1,
		.sources = &source,
		.source_count = 1,
		.lines = line,
		.line_count = 1};

	assert_int_equal(
		engine->entitlements->ops->put(engine->entitlements, engine->session, &changes),
		STATUS_OK);
}

/* One more change of this user's sources that leaves the status alone. */
static void change_sources(struct engine *engine, const char *name, int64_t step, int64_t at_us)
{
	struct entitlement_audit line = {
		.user_id = engine_name(engine, name),
		.unit = slice_of("item"),
		.is_active = true,
		.version = 3,
		.step = step,
		.at_us = at_us,
	};

	engine_begin(engine->session);
	put_line(engine, &line);
	engine_commit(engine->session);
}

/* One more change of this user's, as the service writes it. */
static void change(struct engine *engine, const char *name, int64_t version, int64_t at_us)
{
	char event[32];
	struct entitlement_audit line = {
		.user_id = engine_name(engine, name),
		.unit = slice_of("item"),
		.is_active = version % 2 != 0,
		.version = version,
		.at_us = at_us,
	};
	struct outbox_event out;

	snprintf(event, sizeof(event), "%s%lld", name, (long long)version);
	line.event_id = engine_uuid(engine, event);
	out = (struct outbox_event){
		.id = line.event_id,
		.type = slice_of(line.is_active ? ENTITLEMENT_GRANTED : ENTITLEMENT_REVOKED),
		.key = entitlement_aggregate_key(&engine->arena, line.user_id, line.unit),
		.payload = pack(engine, &line),
		.occurred_us = at_us,
	};
	engine_begin(engine->session);
	put_line(engine, &line);
	assert_int_equal(
		engine->outbox->ops->put(engine->outbox, engine->session, &out, 1), STATUS_OK);
	engine_commit(engine->session);
}

static struct slice item_of(struct engine *engine, const char *name)
{
	return entitlement_aggregate_key(
		&engine->arena, engine_name(engine, name), slice_of("item"));
}

static void an_entitlement_is_listed_with_its_newest_line_and_a_line_with_its_event(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d", "e"};
	struct engine *engine = *state;
	struct entitlements entitlements = {
		.repository = engine->entitlements, .outbox = engine->outbox};
	struct verifier verifier = entitlements_verifier(&entitlements);
	int64_t now_us = clock_wall_us(&clock_system);
	struct walk walk;

	for (size_t i = 0; i < 5; i++) {
		for (int64_t version = 1; version <= 3; version++)
			change(engine, names[i], version, now_us);
	}
	walk = walk_through(engine, &verifier, 2);
	assert_nothing_told(&walk, engine_name(engine, ""));
	engine_execute(engine, "UPDATE entitlements SET version = 5 WHERE user_id = '%s'",
		engine_name(engine, "a").data);
	engine_execute(engine, "DELETE FROM entitlement_audit WHERE user_id = '%s' AND version = 2",
		engine_name(engine, "b").data);
	engine_execute(engine, "DELETE FROM outbox_events WHERE event_id = '%s'",
		engine_uuid(engine, "c2").data);
	engine_execute(engine, "DELETE FROM entitlements WHERE user_id = '%s'",
		engine_name(engine, "d").data);
	walk = walk_through(engine, &verifier, 1);
	assert_told(&walk, item_of(engine, "a"), "audit-differs");
	assert_told(&walk, item_of(engine, "b"), "audit-gap");
	assert_told(&walk, item_of(engine, "c"), "outbox-missing");
	assert_told(&walk, item_of(engine, "d"), "no-entitlement");
	assert_nothing_told(&walk, item_of(engine, "e"));
}

static void an_entitlement_is_listed_with_its_sources_and_every_step_of_them(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d", "e"};
	struct engine *engine = *state;
	struct entitlements entitlements = {
		.repository = engine->entitlements, .outbox = engine->outbox};
	struct verifier verifier = entitlements_verifier(&entitlements);
	int64_t now_us = clock_wall_us(&clock_system);
	struct walk walk, small;

	for (size_t i = 0; i < 5; i++) {
		for (int64_t version = 1; version <= 3; version++)
			change(engine, names[i], version, now_us);
		for (int64_t step = 1; step <= 3; step++)
			change_sources(engine, names[i], step, now_us);
	}
	walk = walk_through(engine, &verifier, 1000);
	assert_nothing_told(&walk, engine_name(engine, ""));
	small = walk_through(engine, &verifier, 1);
	assert_true(small.checked == walk.checked);
	assert_nothing_told(&small, engine_name(engine, ""));
	engine_execute(engine,
		"UPDATE entitlement_sources SET status = 'REVOKED', revoked_at = granted_at WHERE "
		"user_id = '%s'",
		engine_name(engine, "a").data);
	change(engine, "b", 4, now_us);
	engine_execute(engine,
		"UPDATE entitlement_sources SET status = 'ACTIVE', revoked_at = NULL WHERE user_id "
		"= '%s'",
		engine_name(engine, "b").data);
	engine_execute(engine, "DELETE FROM entitlement_audit WHERE user_id = '%s' AND step = 3",
		engine_name(engine, "c").data);
	engine_execute(engine, "DELETE FROM entitlement_audit WHERE user_id = '%s' AND step = 2",
		engine_name(engine, "d").data);
	walk = walk_through(engine, &verifier, 1);
	assert_told(&walk, item_of(engine, "a"), "no-source");
	assert_told(&walk, item_of(engine, "b"), "source-left");
	assert_told(&walk, item_of(engine, "c"), "audit-differs");
	assert_told(&walk, item_of(engine, "d"), "audit-gap");
	assert_nothing_told(&walk, item_of(engine, "e"));
}

/* What retention takes is not missed. */
static void what_is_older_than_it_is_kept_is_not_missed(void **state)
{
	struct engine *engine = *state;
	struct entitlements entitlements = {
		.repository = engine->entitlements, .outbox = engine->outbox};
	struct verifier verifier = entitlements_verifier(&entitlements);
	int64_t now_us = clock_wall_us(&clock_system);
	struct walk walk;

	change(engine, "old", 1, now_us - 40 * 24 * HOUR_US);
	change(engine, "day", 1, now_us - 25 * HOUR_US);
	engine_execute(engine, "DELETE FROM entitlement_audit WHERE user_id = '%s'",
		engine_name(engine, "old").data);
	engine_execute(engine, "DELETE FROM outbox_events WHERE event_id = '%s'",
		engine_uuid(engine, "day1").data);
	walk = walk_through(engine, &verifier, 10);
	assert_nothing_told(&walk, engine_name(engine, ""));
	assert_nothing_told(&walk, engine_uuid(engine, "old1"));
}

/* ---- claims ------------------------------------------------------------------------------ */

static void rows_are_right_in_every_state_that_steps_lead_to(void **state)
{
	static const enum claim_end ends[] = {
		CLAIM_DONE, CLAIM_RETRY, CLAIM_FAILED, CLAIM_RETURNED};
	struct engine *engine = *state;
	struct entitlements entitlements = {
		.repository = engine->entitlements, .outbox = engine->outbox};
	struct verifier verifier = entitlements_verifier(&entitlements);
	struct claim_terms terms = {SLICE("me"), HOUR_US, 5};
	struct claim claims[5];
	size_t count = 0;
	struct walk walk;

	for (int64_t version = 1; version <= 5; version++)
		change(engine, "a", version, 1000 + version); /* the oldest of all */
	engine_begin(engine->session);
	assert_int_equal(engine->outbox->claims->ops->claim(engine->outbox->claims, engine->session,
				 &engine->arena, &terms, claims, &count),
		STATUS_OK);
	assert_int_equal(count, 5);
	for (size_t i = 0; i < 4; i++) {
		claims[i].end = ends[i];
		claims[i].error = slice_of("why");
	}
	assert_int_equal(engine->outbox->claims->ops->end(
				 engine->outbox->claims, engine->session, terms.owner, claims, 4),
		STATUS_OK);
	engine_commit(engine->session);
	walk = walk_through(engine, &verifier, 2);
	for (size_t i = 0; i < 5; i++)
		assert_nothing_told(&walk, claims[i].id);
	engine_execute(engine,
		"UPDATE outbox_events SET lease_until = locked_at WHERE event_id = '%s'",
		claims[0].id.data);
	engine_execute(engine, "UPDATE outbox_events SET last_error = NULL WHERE event_id = '%s'",
		claims[2].id.data);
	engine_execute(engine, "UPDATE outbox_events SET locked_by = NULL WHERE event_id = '%s'",
		claims[4].id.data);
	walk = walk_through(engine, &verifier, 2);
	assert_told(&walk, claims[0].id, "lease");
	assert_told(&walk, claims[2].id, "error");
	assert_told(&walk, claims[4].id, "lease");
	assert_nothing_told(&walk, claims[1].id);
}

/* ---- notifications ----------------------------------------------------------------------- */

static void a_notification_is_listed_with_its_event_and_its_letter(void **state)
{
	struct engine *engine = *state;
	struct notifications notifications = {.repository = engine->notifications};
	struct verifier verifier = notifications_verifier(&notifications);
	struct notification rows[2];
	struct inbox_event events[2];
	struct walk walk;

	for (int i = 0; i < 2; i++) {
		char name[2] = {(char)('a' + i), '\0'};

		rows[i] = (struct notification){.id = engine_uuid(engine, name),
			.event_id = engine_name(engine, name),
			.event_type = slice_of("EntitlementGranted"),
			.user_id = engine_name(engine, "u"),
			.unit = slice_of("item"),
			.version = 1};
		events[i] = (struct inbox_event){.event_id = rows[i].event_id};
	}
	engine_begin(engine->session);
	assert_int_equal(engine->notifications->inbox->ops->put(
				 engine->notifications->inbox, engine->session, events, 2),
		STATUS_OK);
	assert_int_equal(
		engine->notifications->ops->put(engine->notifications, engine->session, rows, 2),
		STATUS_OK);
	engine_commit(engine->session);
	walk = walk_through(engine, &verifier, 1);
	assert_nothing_told(&walk, rows[0].id);
	assert_nothing_told(&walk, rows[1].id);
	engine_execute(engine, "DELETE FROM processed_events WHERE event_id = '%s'",
		rows[0].event_id.data);
	engine_execute(engine,
		"UPDATE notifications SET status = 'FAILED', last_error = 'why', attempt_count = 1 "
		"WHERE notification_id = '%s'",
		rows[1].id.data);
	walk = walk_through(engine, &verifier, 1);
	assert_told(&walk, rows[0].id, "event-missing");
	assert_told(&walk, rows[1].id, "letter-missing");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(counts_are_listed_once_whatever_the_size_of_a_page),
		ENGINE_TEST(keys_of_the_asked_scopes_are_listed_and_no_others),
		ENGINE_TEST(limits_are_listed_with_what_is_in_the_table),
		ENGINE_TEST(pots_are_listed_with_the_sum_of_their_coins),
		ENGINE_TEST(
			an_entitlement_is_listed_with_its_newest_line_and_a_line_with_its_event),
		ENGINE_TEST(an_entitlement_is_listed_with_its_sources_and_every_step_of_them),
		ENGINE_TEST(what_is_older_than_it_is_kept_is_not_missed),
		ENGINE_TEST(rows_are_right_in_every_state_that_steps_lead_to),
		ENGINE_TEST(a_notification_is_listed_with_its_event_and_its_letter),
	};

	return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}

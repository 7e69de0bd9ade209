/* Grants and revokes in batches: answers, rows, sources, audit and outbox must agree. */
#include "check.h"

#include "entitlement_model.h"

#define ROWS_MAX 8
#define SOURCES_MAX 128
#define CHANGES_MAX 4
#define MODEL_BATCHES 400

/* ---- a repository in memory -------------------------------------------------------------- */

static struct memory {
	struct entitlement_row rows[ROWS_MAX];
	size_t row_count;
	struct entitlement_source sources[SOURCES_MAX];
	size_t source_count;
	size_t puts, line_count, event_count;
	/* how many rows find_sources() was called for */
	size_t rows_looked_at;
	struct entitlement_audit last_lines[CHANGES_MAX]; /* the lines of the last put */
} memory;

static struct entitlement_row *stored_row(struct slice user_id, struct slice unit)
{
	for (size_t i = 0; i < memory.row_count; i++) {
		if (slice_equal(memory.rows[i].user_id, user_id) &&
			slice_equal(memory.rows[i].unit, unit))
			return &memory.rows[i];
	}
	return NULL;
}

static bool belongs_to(const struct entitlement_source *source, const struct entitlement_row *row)
{
	return slice_equal(source->user_id, row->user_id) && slice_equal(source->unit, row->unit);
}

static struct entitlement_source *stored_source(const struct entitlement_source *wanted)
{
	for (size_t i = 0; i < memory.source_count; i++) {
		struct entitlement_source *source = &memory.sources[i];

		if (slice_equal(source->user_id, wanted->user_id) &&
			slice_equal(source->unit, wanted->unit) &&
			slice_equal(source->kind, wanted->kind) &&
			slice_equal(source->id, wanted->id))
			return source;
	}
	return NULL;
}

static enum status lock(const struct entitlement_repository *repository, struct session *session,
	struct entitlement_row *rows, size_t count, int64_t *now_us)
{
	(void)session;
	for (size_t i = 0; i < count; i++) {
		const struct entitlement_row *row = stored_row(rows[i].user_id, rows[i].unit);

		rows[i].exists = row;
		if (row)
			rows[i] = *row;
	}
	*now_us = 1767856200123000;
	return STATUS_OK;
}

static enum status find_sources(const struct entitlement_repository *repository,
	struct session *session, struct entitlement_row *rows, size_t row_count,
	struct entitlement_source *sources, size_t source_count)
{
	(void)session;
	memory.rows_looked_at += row_count;
	for (size_t i = 0; i < row_count; i++) {
		rows[i].source_count = rows[i].active_count = 0;
		for (size_t k = 0; k < memory.source_count; k++) {
			bool is_of = belongs_to(&memory.sources[k], &rows[i]);

			rows[i].source_count += is_of;
			rows[i].active_count += is_of && memory.sources[k].is_active;
		}
	}
	for (size_t i = 0; i < source_count; i++) {
		const struct entitlement_source *source = stored_source(&sources[i]);

		sources[i].exists = source;
		if (source)
			sources[i] = *source;
	}
	return STATUS_OK;
}

static void put_row(const struct entitlement_row *row)
{
	struct entitlement_row *place = stored_row(row->user_id, row->unit);

	assert_int_equal(place != NULL, row->exists);
	if (!place) {
		assert_true(memory.row_count < ROWS_MAX);
		place = &memory.rows[memory.row_count++];
	}
	*place = *row;
	place->exists = true;
	place->ends_sources = false;
	for (size_t i = 0; row->ends_sources && i < memory.source_count; i++) {
		if (belongs_to(&memory.sources[i], row) && memory.sources[i].is_active) {
			memory.sources[i].is_active = false;
			memory.sources[i].revoked_us = row->updated_us;
		}
	}
}

static void put_source(const struct entitlement_source *source)
{
	struct entitlement_source *place = stored_source(source);

	assert_int_equal(place != NULL, source->exists);
	if (!place) {
		assert_true(memory.source_count < SOURCES_MAX);
		assert_true(source->reason.len > 0);
		place = &memory.sources[memory.source_count++];
	}
	*place = *source;
	place->exists = true;
}

static enum status put(const struct entitlement_repository *repository, struct session *session,
	const struct entitlement_changes *changes)
{
	(void)session;
	memory.puts++;
	for (size_t i = 0; i < changes->row_count; i++)
		put_row(&changes->rows[i]);
	for (size_t i = 0; i < changes->source_count; i++)
		put_source(&changes->sources[i]);
	for (size_t i = 0; i < changes->line_count && i < CHANGES_MAX; i++)
		memory.last_lines[i] = changes->lines[i];
	memory.line_count += changes->line_count;
	return STATUS_OK;
}

static enum status look(const struct entitlement_repository *repository, struct session *session,
	struct arena *arena, struct entitlement_look *looks, size_t count, size_t source_max)
{
	(void)session;
	for (size_t i = 0; i < count; i++) {
		const struct entitlement_row *row =
			stored_row(looks[i].row.user_id, looks[i].row.unit);

		if (row)
			looks[i].row = *row;
		looks[i].sources = arena_array(arena, struct entitlement_source, SOURCES_MAX);
		for (size_t k = 0; k < memory.source_count; k++) {
			if (looks[i].source_count < source_max &&
				belongs_to(&memory.sources[k], &looks[i].row))
				looks[i].sources[looks[i].source_count++] = memory.sources[k];
		}
	}
	return STATUS_OK;
}

static enum status put_events(const struct outbox_repository *repository, struct session *session,
	const struct outbox_event *events, size_t count)
{
	(void)session;
	(void)events;
	memory.event_count += count;
	return STATUS_OK;
}

static struct entitlements entitlements_in_memory(void)
{
	static const struct entitlement_repository_ops repository_ops = {
		.lock = lock, .find_sources = find_sources, .put = put, .look = look};
	static const struct entitlement_repository repository = {.ops = &repository_ops};
	static const struct outbox_repository_ops outbox_ops = {.put = put_events};
	static const struct outbox_repository outbox = {.ops = &outbox_ops};

	memset(&memory, 0, sizeof(memory));
	return (struct entitlements){.repository = &repository, .outbox = &outbox};
}

/* ---- single batches ---------------------------------------------------------------------- */

struct step {
	bool is_grant;
	const char *purchase; /* empty for none */
	int http_status;
};

/* Runs these changes of one entitlement as one batch and compares the HTTP statuses. */
static void run_batch(
	const struct entitlements *entitlements, const struct step *steps, size_t count)
{
	struct entitlement_command commands[CHANGES_MAX] = {0};
	struct write *writes[CHANGES_MAX];
	struct arena arena;
	struct write_batch batch = {.writes = writes, .count = count, .arena = &arena};

	arena_init(&arena, 4096);
	for (size_t i = 0; i < count; i++) {
		commands[i].write.command.type = &entitlement_command_type;
		commands[i].is_grant = steps[i].is_grant;
		commands[i].user_id = slice_of("user");
		commands[i].unit = slice_of("unit");
		commands[i].reason = slice_of("reason");
		commands[i].purchase_id = slice_of(steps[i].purchase);
		commands[i].write.position = i;
		commands[i].write.command.arena = &arena;
		commands[i].write.command.key = slice_of("user unit");
		writes[i] = &commands[i].write;
	}
	assert_int_equal(entitlement_batch_decide(entitlements, NULL, &batch), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(
			commands[i].write.command.answer.http_status, steps[i].http_status);
	arena_release(&arena);
}

static void a_change_is_written_whatever_is_refused_around_it(void **state)
{
	static const struct step steps[] = {
		{false, "p1", 404}, {true, "p1", 200}, {true, "p1", 409}, {false, "p2", 404}};
	struct entitlements entitlements = entitlements_in_memory();

	(void)state;
	run_batch(&entitlements, steps, 4);
	assert_int_equal(memory.puts, 1);
	assert_true(memory.rows[0].is_active);
	assert_int_equal(memory.rows[0].version, 1);
	assert_int_equal(memory.source_count, 1);
	assert_int_equal(memory.line_count, 1);
	assert_int_equal(memory.event_count, 1);
}

static void each_turn_of_a_batch_has_a_line_and_an_event_and_the_last_is_the_row(void **state)
{
	static const struct step steps[] = {
		{true, "p1", 200}, {false, "p1", 200}, {true, "p2", 200}, {false, "", 200}};
	struct entitlements entitlements = entitlements_in_memory();

	(void)state;
	run_batch(&entitlements, steps, 4);
	assert_int_equal(memory.puts, 1);
	assert_false(memory.rows[0].is_active);
	assert_int_equal(memory.rows[0].version, 4);
	assert_int_equal(memory.line_count, 4);
	assert_int_equal(memory.event_count, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(memory.last_lines[i].version, i + 1);
		assert_int_equal(memory.last_lines[i].step, 0);
	}
}

static void a_second_purchase_is_a_line_without_an_event_and_survives_the_refund_of_the_first(
	void **state)
{
	static const struct step steps[] = {
		{true, "p1", 200}, {true, "p2", 200}, {false, "p1", 200}, {true, "p1", 409}};
	struct entitlements entitlements = entitlements_in_memory();

	(void)state;
	run_batch(&entitlements, steps, 4);
	assert_true(memory.rows[0].is_active);
	assert_int_equal(memory.rows[0].version, 1);
	assert_int_equal(memory.rows[0].step, 2);
	assert_int_equal(memory.event_count, 1);
	assert_int_equal(memory.line_count, 3);
	assert_true(memory.last_lines[0].event_id.len > 0);
	assert_true(memory.last_lines[2].event_id.len == 0);
	assert_false(memory.last_lines[2].is_active);
	assert_int_equal(memory.last_lines[2].version, 1);
	assert_int_equal(memory.last_lines[2].step, 2);
}

static void a_batch_that_changes_nothing_writes_nothing(void **state)
{
	static const struct step steps[] = {{false, "p1", 404}, {false, "", 404}};
	struct entitlements entitlements = entitlements_in_memory();

	(void)state;
	run_batch(&entitlements, steps, 2);
	assert_int_equal(memory.puts + memory.line_count + memory.event_count, 0);
}

static void sources_are_read_only_of_entitlements_that_exist(void **state)
{
	static const struct step first[] = {{true, "p1", 200}}, second[] = {{true, "p2", 200}};
	struct entitlements entitlements = entitlements_in_memory();

	(void)state;
	run_batch(&entitlements, first, 1);
	assert_int_equal(memory.rows_looked_at, 0);
	run_batch(&entitlements, second, 1);
	assert_int_equal(memory.rows_looked_at, 1);
}

/* ---- many batches ------------------------------------------------------------------------ */

static void random_batches_do_what_single_changes_would(void **state)
{
	struct arena arena;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct entitlements entitlements = entitlements_in_memory();
		struct entitlement_model model;
		int64_t lines = 0;

		arena_init(&arena, 16384);
		entitlement_model_init(&model, &arena, "", seed);
		entitlement_model_migrate(&model, entitlements.repository, NULL);
		for (int i = 0; i < MODEL_BATCHES / 20; i++) {
			entitlement_model_run(&model, &entitlements, NULL);
			entitlement_model_compare(&model, entitlements.repository, NULL);
		}
		for (size_t i = 0; i < MODEL_PAIRS; i++)
			lines += model.pairs[i].line_count;
		assert_int_equal(memory.line_count, lines);
		assert_int_equal(memory.event_count, model.event_count);
		arena_release(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_is_written_whatever_is_refused_around_it),
		cmocka_unit_test(
			each_turn_of_a_batch_has_a_line_and_an_event_and_the_last_is_the_row),
		cmocka_unit_test(
			a_second_purchase_is_a_line_without_an_event_and_survives_the_refund_of_the_first),
		cmocka_unit_test(a_batch_that_changes_nothing_writes_nothing),
		cmocka_unit_test(sources_are_read_only_of_entitlements_that_exist),
		cmocka_unit_test(random_batches_do_what_single_changes_would),
	};

	return cmocka_run_group_tests_name("entitlement batch", tests, NULL, NULL);
}

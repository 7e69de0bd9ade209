/* Grants and revokes of one entitlement in one batch: row, history and outbox must say the same. */
#include "check.h"

#include "services/entitlements/entitlement_batch.h"

#define CHANGES_MAX 4

/* A repository without a row that remembers what is written. */
static struct written {
	struct entitlement_row row;
	size_t row_count, line_count, event_count;
	int64_t versions[CHANGES_MAX]; /* of the lines */
} written;

static enum status lock_nothing(const struct entitlement_repository *repository,
	struct session *session, struct entitlement_row *rows, size_t count, int64_t *now_us)
{
	(void)session;
	for (size_t i = 0; i < count; i++)
		rows[i].exists = false;
	*now_us = 1767856200123000;
	return STATUS_OK;
}

static enum status put_rows(const struct entitlement_repository *repository,
	struct session *session, const struct entitlement_row *rows, size_t count)
{
	(void)session;
	written.row = rows[0];
	written.row_count += count;
	return STATUS_OK;
}

static enum status put_lines(const struct entitlement_repository *repository,
	struct session *session, const struct entitlement_audit *lines, size_t count)
{
	(void)session;
	assert_true(count <= CHANGES_MAX);
	for (size_t i = 0; i < count; i++)
		written.versions[i] = lines[i].version;
	written.line_count += count;
	return STATUS_OK;
}

static enum status put_events(const struct outbox_repository *repository, struct session *session,
	const struct outbox_event *events, size_t count)
{
	(void)session;
	(void)events;
	written.event_count += count;
	return STATUS_OK;
}

/* Decides these verbs on one entitlement as one batch and compares the HTTP statuses. */
static void run_batch(const enum entitlement_verb *verbs, const int *statuses, size_t count)
{
	static const struct entitlement_repository_ops repository_ops = {
		.lock = lock_nothing, .put = put_rows, .audit = put_lines};
	static const struct entitlement_repository repository = {.ops = &repository_ops};
	static const struct outbox_repository_ops outbox_ops = {.put = put_events};
	static const struct outbox_repository outbox = {.ops = &outbox_ops};
	struct entitlements entitlements = {.repository = &repository, .outbox = &outbox};
	struct entitlement_command commands[CHANGES_MAX] = {0};
	struct write *writes[CHANGES_MAX];
	struct arena arena;
	struct write_batch batch = {.writes = writes, .count = count, .arena = &arena};

	arena_init(&arena, 4096);
	memset(&written, 0, sizeof(written));
	for (size_t i = 0; i < count; i++) {
		commands[i].write.command.type = &entitlement_command_type;
		commands[i].verb = verbs[i];
		commands[i].user_id = slice_of("user");
		commands[i].unit = slice_of("unit");
		commands[i].write.position = i;
		commands[i].write.command.arena = &arena;
		commands[i].write.command.key = slice_of("user unit");
		writes[i] = &commands[i].write;
	}
	assert_int_equal(entitlement_batch_decide(&entitlements, NULL, &batch), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(commands[i].write.command.answer.http_status, statuses[i]);
	arena_release(&arena);
}

static void a_change_is_written_whatever_is_refused_around_it(void **state)
{
	static const enum entitlement_verb verbs[] = {
		ENTITLEMENT_REVOKE, ENTITLEMENT_GRANT, ENTITLEMENT_GRANT};
	static const int statuses[] = {404, 200, 409};

	(void)state;
	run_batch(verbs, statuses, 3);
	assert_int_equal(written.row_count, 1);
	assert_true(written.row.is_active);
	assert_int_equal(written.row.version, 1);
	assert_int_equal(written.line_count, 1);
	assert_int_equal(written.event_count, 1);
}

static void each_change_of_a_batch_has_a_line_and_an_event_and_the_last_is_the_row(void **state)
{
	static const enum entitlement_verb verbs[] = {
		ENTITLEMENT_GRANT, ENTITLEMENT_REVOKE, ENTITLEMENT_GRANT, ENTITLEMENT_REVOKE};
	static const int statuses[] = {200, 200, 200, 200};

	(void)state;
	run_batch(verbs, statuses, 4);
	assert_int_equal(written.row_count, 1);
	assert_false(written.row.is_active);
	assert_int_equal(written.row.version, 4);
	assert_int_equal(written.line_count, 4);
	assert_int_equal(written.event_count, 4);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(written.versions[i], i + 1);
}

static void a_batch_that_changes_nothing_writes_nothing(void **state)
{
	static const enum entitlement_verb verbs[] = {ENTITLEMENT_REVOKE, ENTITLEMENT_REVOKE};
	static const int statuses[] = {404, 404};

	(void)state;
	run_batch(verbs, statuses, 2);
	assert_int_equal(written.row_count + written.line_count + written.event_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_is_written_whatever_is_refused_around_it),
		cmocka_unit_test(
			each_change_of_a_batch_has_a_line_and_an_event_and_the_last_is_the_row),
		cmocka_unit_test(a_batch_that_changes_nothing_writes_nothing),
	};

	return cmocka_run_group_tests_name("entitlement batch", tests, NULL, NULL);
}

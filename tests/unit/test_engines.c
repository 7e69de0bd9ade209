/*
 * A new engine is a folder of adapters/ and a line of app/engines.c. Here a table of the test's
 * own, with the faulty store as an engine, takes the place of app/engines.c; everything that uses
 * the table is the program's.
 */
#include "check.h"

#include <unistd.h>

#include "app/app.h"
#include "faulty_store.h"

/* ---- the tables, in the place of app/engines.c ------------------------------------------- */

static const char *created_path; /* the arguments of the engine's create() */

static struct store *create_faulty(const struct store_plan *plan, const char *path)
{
	created_path = path;
	return &faulty_store_new()->base;
}

const struct store_engine store_engines[] = {
	{"faulty:", false, create_faulty},
	{"filed://", true, create_faulty},
	{NULL, false, NULL},
};

const struct bus_engine bus_engines[] = {
	{NULL, false, NULL},
};

/* Replaces the function of app/serve.c, which is not linked here. */
void app_add_routes(struct app *app)
{
}

const struct module *module_next(const struct app *app, const struct module *before)
{
	return NULL;
}

/* ---- opening ----------------------------------------------------------------------------- */

struct fixture {
	struct app app;
	char data[64];
	char why[OPTIONS_WHY_SIZE];
};

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	snprintf(fixture->data, sizeof(fixture->data), "/tmp/quipu-engines-XXXXXX");
	assert_non_null(mkdtemp(fixture->data));
	fixture->app.settings.data = fixture->data;
	fixture->app.data_lock = -1;
	arena_init(&fixture->app.arena, 8192);
	created_path = NULL;
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	char lock[80];

	app_close(&fixture->app);
	snprintf(lock, sizeof(lock), "%s/lock", fixture->data);
	unlink(lock);
	rmdir(fixture->data);
	arena_release(&fixture->app.arena);
	free(fixture);
	return 0;
}

static struct store *open_store(struct fixture *fixture, const char *url)
{
	static const char *const components[] = {NULL};
	const struct store_plan plan = {
		.name = "test-store", .url = url, .file = "test.db", .components = components};

	return app_open_store(&fixture->app, &plan, fixture->why);
}

/* Creates a count through the ports and reads it back. */
static void assert_works(struct store *store)
{
	const struct count_repository *counts = store->repositories->counts;
	struct session *session = store->ops->open_session(store, SESSION_WRITE);
	const struct count_edit edit = {
		.item_id = slice_of("item"), .kind = COUNT_INSERT, .value = 7};
	struct count_row row = {.item_id = edit.item_id};

	assert_ptr_equal(session->store, store);
	assert_int_equal(session->ops->begin(session, TRANSACTION_WAIT), STATUS_OK);
	assert_int_equal(counts->ops->edit(counts, session, &edit, 1, 1), STATUS_OK);
	assert_int_equal(session->ops->commit(session), STATUS_OK);
	assert_int_equal(counts->ops->find(counts, session, &row, 1), STATUS_OK);
	assert_true(row.exists && row.value == 7);
	session_close(session);
}

/* ---- tests ------------------------------------------------------------------------------- */

static void an_engine_is_found_by_the_scheme_of_its_urls(void **state)
{
	assert_ptr_equal(store_engine_find("faulty:"), &store_engines[0]);
	assert_ptr_equal(store_engine_find("filed://anywhere"), &store_engines[1]);
	assert_null(store_engine_find("faulty:more"));
	assert_null(store_engine_find("sqlite:"));
	assert_null(store_engine_find(""));
	assert_null(bus_engine_find("local:"));
}

static void a_store_of_a_new_engine_is_opened_and_works(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = open_store(fixture, "faulty:");

	assert_non_null(store);
	assert_string_equal(store->engine, "faulty");
	assert_null(created_path);
	assert_int_equal(fixture->app.health.store_count, 1);
	assert_ptr_equal(fixture->app.health.stores[0], store);
	assert_works(store);
}

static void an_engine_with_a_file_gets_a_path_in_the_locked_data_folder(void **state)
{
	struct fixture *fixture = *state;
	struct fixture other = {.app = {.settings = {.data = fixture->data}, .data_lock = -1}};
	char expected[80];

	assert_non_null(open_store(fixture, "filed://"));
	snprintf(expected, sizeof(expected), "%s/test.db", fixture->data);
	assert_string_equal(created_path, expected);

	arena_init(&other.app.arena, 8192);
	assert_null(open_store(&other, "filed://"));
	assert_non_null(strstr(other.why, "in use by another quipu"));
	app_close(&other.app);
	arena_release(&other.app.arena);
}

static void a_traced_store_looks_like_the_one_inside(void **state)
{
	struct fixture *fixture = *state;
	struct store *plain = open_store(fixture, "faulty:");
	struct store *traced;

	fixture->app.settings.trace_store = true;
	traced = open_store(fixture, "faulty:");
	assert_non_null(traced);
	assert_ptr_not_equal(traced->ops, plain->ops);
	assert_string_equal(traced->name, plain->name);
	assert_string_equal(traced->engine, plain->engine);
	assert_int_equal(traced->lanes_default, plain->lanes_default);
	assert_int_equal(traced->single_saves_a_trip, plain->single_saves_a_trip);
	assert_true(traced->ops->is_up(traced));
	assert_null(traced->repositories->messages);
	assert_null(traced->repositories->notifications);
	assert_null(traced->repositories->dialog_outbox);
	assert_works(traced);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_engine_is_found_by_the_scheme_of_its_urls),
		TEST(a_store_of_a_new_engine_is_opened_and_works),
		TEST(an_engine_with_a_file_gets_a_path_in_the_locked_data_folder),
		TEST(a_traced_store_looks_like_the_one_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

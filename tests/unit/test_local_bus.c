/* The local bus while another thread keeps its file busy, as on a slow disk. The contract of the
 * port is in tests/contract. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/bus/local/local_internal.h"
#include "base/hash.h"
#include "check.h"
#include "waiting.h"

static const struct bus_channel channel = {.name = "events", .partitions = 1};

struct fixture {
	char folder[64];
	char path[80];
	struct bus *bus;
	struct producer *producer;
};

static void open_bus(struct fixture *fixture)
{
	char why[256] = "";

	snprintf(fixture->folder, sizeof(fixture->folder), "/tmp/quipu-local-XXXXXX");
	assert_non_null(mkdtemp(fixture->folder));
	snprintf(fixture->path, sizeof(fixture->path), "%s/bus.db", fixture->folder);
	fixture->bus = local_bus_new("local", fixture->path, &channel, 1);
	if (!fixture->bus->ops->start(fixture->bus, why, sizeof(why)))
		fail_msg("%s", why);
	fixture->producer = fixture->bus->ops->open_producer(fixture->bus);
}

static void close_bus(struct fixture *fixture)
{
	fixture->producer->ops->close(fixture->producer);
	fixture->bus->ops->free(fixture->bus);
	unlink(fixture->path);
	rmdir(fixture->folder);
}

/* Work that uses the file until the test lets it go. */
struct busy {
	struct local_work work; /* first */
	struct local_bus *bus;
	sem_t has_begun;
	sem_t may_end;
	pthread_t thread;
};

static int use_the_file(struct local_bus *bus, struct local_work *work)
{
	struct busy *busy = (struct busy *)work;

	(void)bus;
	sem_post(&busy->has_begun);
	while (sem_wait(&busy->may_end) != 0)
		continue;
	return SQLITE_OK;
}

static void *be_busy(void *context)
{
	struct busy *busy = context;

	local_work_do(busy->bus, &busy->work, hang_deadline_ns());
	return NULL;
}

static void begin(struct busy *busy, struct bus *bus)
{
	*busy = (struct busy){.work.run = use_the_file, .bus = local_bus_of(bus)};
	sem_init(&busy->has_begun, 0, 0);
	sem_init(&busy->may_end, 0, 0);
	assert_int_equal(pthread_create(&busy->thread, NULL, be_busy, busy), 0);
	while (sem_wait(&busy->has_begun) != 0)
		continue;
}

static void end(struct busy *busy)
{
	sem_post(&busy->may_end);
	pthread_join(busy->thread, NULL);
	assert_int_equal(busy->work.outcome, LOCAL_DONE);
	sem_destroy(&busy->has_begun);
	sem_destroy(&busy->may_end);
}

static struct bus_message make_message(const char *channel_name)
{
	return (struct bus_message){.channel = slice_of(channel_name),
		.id = slice_of("id"),
		.value = slice_of("value")};
}

static void test_a_message_that_the_file_was_too_busy_for_is_untried(void **state)
{
	struct bus_message message = make_message("events");
	static struct busy
		busy; /* not on the stack, which a test that fails leaves to its thread */
	struct fixture fixture;

	(void)state;
	open_bus(&fixture);
	begin(&busy, fixture.bus);
	assert_int_equal(
		fixture.producer->ops->publish(fixture.producer, &message, 1, in_ms(0)), STATUS_OK);
	assert_int_equal(message.fate, BUS_NOT_PERSISTED);
	assert_true(message.is_untried);
	assert_true(fixture.bus->ops->is_up(fixture.bus)); /* it is busy, not broken */
	end(&busy);
	assert_int_equal(
		fixture.producer->ops->publish(fixture.producer, &message, 1, in_ms(HANG_MS)),
		STATUS_OK);
	assert_int_equal(message.fate, BUS_CONFIRMED);
	assert_false(message.is_untried);
	close_bus(&fixture);
}

static void test_a_message_that_is_too_large_is_unfit(void **state)
{
	struct bus_message message = make_message("events");
	size_t size = (size_t)64 * 1024 * 1024 + 1;
	char *value = qp_calloc(size, 1);
	struct fixture fixture;

	(void)state;
	open_bus(&fixture);
	for (int i = 0; i < 2; i++) {
		bool is_large = i == 0;

		message.value = slice_make(value, is_large ? size : 1);
		assert_int_equal(fixture.producer->ops->publish(
					 fixture.producer, &message, 1, in_ms(HANG_MS)),
			STATUS_OK);
		assert_int_equal(message.fate, is_large ? BUS_NOT_PERSISTED : BUS_CONFIRMED);
		assert_int_equal(message.is_unfit, is_large);
	}
	close_bus(&fixture);
	free(value);
}

static void test_a_message_that_the_bus_refuses_was_tried(void **state)
{
	struct bus_message message = make_message("no-such-channel");
	struct fixture fixture;

	(void)state;
	open_bus(&fixture);
	assert_int_equal(
		fixture.producer->ops->publish(fixture.producer, &message, 1, in_ms(HANG_MS)),
		STATUS_OK);
	assert_int_equal(message.fate, BUS_NOT_PERSISTED);
	assert_false(message.is_untried);
	close_bus(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_message_that_the_file_was_too_busy_for_is_untried),
		cmocka_unit_test(test_a_message_that_is_too_large_is_unfit),
		cmocka_unit_test(test_a_message_that_the_bus_refuses_was_tried),
	};

	hash_seed();
	return cmocka_run_group_tests_name("local bus", tests, NULL, NULL);
}

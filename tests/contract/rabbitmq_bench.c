#include "rabbitmq_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "adapters/rabbitmq/rabbitmq_bus.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "rabbitmq_server.h"

/* ---- time -------------------------------------------------------------------------------- */

int64_t in_ms(int64_t ms)
{
	return clock_steady_ns(&clock_system) + ms * NS_PER_MS;
}

int64_t ms_since(int64_t from_ns)
{
	return (clock_steady_ns(&clock_system) - from_ns) / NS_PER_MS;
}

void nap_ms(long ms)
{
	const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS};

	nanosleep(&pause, NULL);
}

/* ---- the bus ----------------------------------------------------------------------------- */

static void name_all(struct bench *bench)
{
	static const char *const endings[CHANNELS + GROUPS] = {
		"events", "picky", "plain", "all", "reads", "picks"};
	struct dice dice;
	unsigned number;

	dice_init(&dice);
	number = (unsigned)dice_next(&dice);
	for (int i = 0; i < CHANNELS + GROUPS; i++)
		snprintf(bench->names[i], sizeof(bench->names[i]), "t-%08x-%s", number, endings[i]);
	for (int i = 0; i < CHANNELS; i++)
		bench->channels[i].name = bench->names[i];
	for (int i = 0; i < GROUPS; i++) {
		bench->groups[i].name = bench->names[CHANNELS + i];
		bench->groups[i].subjects = i == ALL ? NULL : "read";
	}
	bench->channels[EVENTS].groups = bench->groups;
	bench->channels[EVENTS].group_count = 2;
	bench->channels[PICKY].groups = &bench->groups[PICKS];
	bench->channels[PICKY].group_count = 1;
}

struct bench *bench_new(void)
{
	struct bench *bench = qp_calloc(1, sizeof(*bench));

	log_configure(getenv("QUIPU_CONTRACT_DEBUG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	hash_seed();
	name_all(bench);
	return bench;
}

void bench_free(struct bench *bench)
{
	free(bench);
}

void bench_open(struct bench *bench, const char *url)
{
	char why[256] = "";

	bench->bus = rabbitmq_bus_new("faults", url, bench->channels, CHANNELS);
	if (!bench->bus->ops->start(bench->bus, why, sizeof(why)))
		fail_msg("%s", why);
	bench->producer = bench->bus->ops->open_producer(bench->bus);
}

void bench_close(struct bench *bench)
{
	if (bench->consumer)
		bench->consumer->ops->close(bench->consumer);
	bench->consumer = NULL;
	bench->producer->ops->close(bench->producer);
	bench->bus->ops->free(bench->bus);
	bench->bus = NULL;
}

int bench_setup(void **state)
{
	struct bench *bench = bench_new();

	bench_open(bench, rabbitmq_server_url());
	bench_wait(bench, true);
	*state = bench;
	return 0;
}

int bench_teardown(void **state)
{
	struct bench *bench = *state;

	rabbitmq_server_try("thaw"); /* a test that fails may leave it frozen */
	if (bench->bus)
		bench_close(bench);
	bench_free(bench);
	return 0;
}

bool bench_is_up(struct bench *bench)
{
	return bench->bus->ops->is_up(bench->bus);
}

void bench_wait(struct bench *bench, bool up)
{
	int64_t until_ns = in_ms(PATIENCE_MS);

	while (bench_is_up(bench) != up && clock_steady_ns(&clock_system) < until_ns)
		nap_ms(1);
	assert_int_equal(bench_is_up(bench), up);
}

/* ---- publishing -------------------------------------------------------------------------- */

struct bus_message *bench_make(struct bench *bench, size_t count)
{
	struct bus_message *messages = &bench->sent[bench->sent_count];

	assert_true(bench->sent_count + count <= MESSAGES_MAX);
	for (size_t i = 0; i < count; i++) {
		size_t number = bench->sent_count++;
		char *id = bench->ids[number];

		snprintf(id, sizeof(bench->ids[0]), "%zu", number);
		messages[i] = (struct bus_message){
			.channel = slice_of(bench->names[EVENTS]),
			.id = slice_of(id),
			.value = slice_of(id),
		};
	}
	return messages;
}

enum status bench_publish(
	struct bench *bench, struct bus_message *messages, size_t count, int64_t timeout_ms)
{
	struct producer *producer = bench->producer;

	return producer->ops->publish(producer, messages, count, in_ms(timeout_ms));
}

void bench_publish_all(struct bench *bench, size_t count, enum bus_fate fate)
{
	struct bus_message *messages = bench_make(bench, count);

	assert_int_equal(bench_publish(bench, messages, count, PATIENCE_MS), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(messages[i].fate, fate);
}

size_t bench_count(const struct bench *bench, enum bus_fate fate)
{
	size_t count = 0;

	for (size_t i = 0; i < bench->sent_count; i++)
		count += bench->sent[i].fate == fate;
	return count;
}

/* ---- consuming --------------------------------------------------------------------------- */

struct consumer *bench_consumer(struct bench *bench)
{
	struct bus *bus = bench->bus;

	if (!bench->consumer)
		bench->consumer =
			bus->ops->open_consumer(bus, bench->names[EVENTS], bench->groups[ALL].name);
	return bench->consumer;
}

size_t bench_fetch(
	struct bench *bench, struct bus_delivery *deliveries, size_t max, int64_t timeout_ms)
{
	struct consumer *consumer = bench_consumer(bench);
	size_t count = 0;

	assert_int_equal(consumer->ops->fetch(consumer, deliveries, max, &count, in_ms(timeout_ms)),
		STATUS_OK);
	return count;
}

void bench_ack(struct bench *bench, size_t count)
{
	assert_int_equal(bench->consumer->ops->ack(bench->consumer, count), STATUS_OK);
}

/* Messages that are not in the book have no id. */
static void note(struct bench *bench, const struct bus_delivery *delivery)
{
	char number[12] = "";

	assert_true(delivery->id.len < sizeof(number));
	memcpy(number, delivery->id.data, delivery->id.len);
	if (*number)
		bench->came[atol(number)]++;
}

/* What is on its way has time to arrive. */
static void take_everything(struct bench *bench)
{
	static struct bus_delivery deliveries[500];
	size_t count;

	while ((count = bench_fetch(bench, deliveries, 500, 1500)) > 0) {
		for (size_t i = 0; i < count; i++)
			note(bench, &deliveries[i]);
		bench_ack(bench, count);
	}
}

void bench_assert_fates(struct bench *bench)
{
	take_everything(bench);
	for (size_t i = 0; i < bench->sent_count; i++) {
		if (bench->sent[i].fate == BUS_CONFIRMED && bench->came[i] == 0)
			fail_msg("%zu was confirmed and did not come", i);
		if (bench->sent[i].fate == BUS_NOT_PERSISTED && bench->came[i] > 0)
			fail_msg("%zu was not persisted and came", i);
	}
	print_message("%zu confirmed, %zu not persisted, %zu unknown\n",
		bench_count(bench, BUS_CONFIRMED), bench_count(bench, BUS_NOT_PERSISTED),
		bench_count(bench, BUS_UNKNOWN));
}

/* ---- the log ----------------------------------------------------------------------------- */

static int real_stderr = -1;
static FILE *log_file;
static char log_text[64 * 1024];

void bench_log_begin(void)
{
	log_configure(LOG_DEBUG, LOG_TEXT);
	log_file = tmpfile();
	assert_non_null(log_file);
	real_stderr = dup(STDERR_FILENO);
	dup2(fileno(log_file), STDERR_FILENO);
}

const char *bench_log_end(void)
{
	size_t len;

	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	rewind(log_file);
	len = fread(log_text, 1, sizeof(log_text) - 1, log_file);
	log_text[len] = '\0';
	fclose(log_file);
	log_configure(LOG_ERROR, LOG_TEXT);
	return log_text;
}

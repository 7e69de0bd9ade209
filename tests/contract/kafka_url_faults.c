/* URLs of Kafka: which are refused, and what is passed on to librdkafka. No broker is needed. */
#include <string.h>

#include "adapters/bus/kafka/kafka_bus.h"
#include "check.h"

static const struct bus_channel channels[] = {{.name = "events", .partitions = 4}};

static const char *const bad_urls[] = {
	"kafka:/localhost",
	"kafka://",
	"kafka://:9092",
	"kafka://host:0",
	"kafka://host:70000",
	"kafka://host:secret",
	"kafka://user:secret@host:9092",
	"kafka://host:9092,,other:9092",
	"kafka://host:9092/topic",
	"kafka://host:9092?",
	"kafka://host:9092?acks=0",
	"kafka://host:9092?enable.idempotence=false",
	"kafka://host:9092?plugin.library.paths=secret",
	"kafka://host:9092?sasl.password",
	"kafka://host:9092?sasl.password=%zz",
	"kafka://host:9092?sasl.password=secret%2",
	"kafka://host:9092?sasl.password=secret%00",
	"kafka://host:9092?security.protocol=secret",
	"kafka://host:9092?sasl.nonsense=secret",
	"kafka://host:9092?socket.timeout.ms=secret",
	"kafka://host:9092?security.protocol=sasl_plaintext&sasl.mechanisms=nonsense",
};

static void a_bad_url_is_refused_with_a_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad_urls) / sizeof(bad_urls[0]); i++) {
		struct bus *bus = kafka_bus_new("faults", bad_urls[i], channels, 1);
		char why[256] = "";
		bool started = bus->ops->start(bus, why, sizeof(why));
		bool empty_query = !strcmp(bad_urls[i], "kafka://host:9092?");

		if (started && !empty_query)
			fail_msg("%s was accepted", bad_urls[i]);
		if (!started && (strlen(why) < 10 || strstr(why, "secret")))
			fail_msg("%s: %s", bad_urls[i], why);
		bus->ops->free(bus);
	}
}

static void options_reach_the_library(void **state)
{
	struct bus *bus = kafka_bus_new("faults",
		"kafka://[::1]:9092,localhost:9093/?security.protocol=sasl_plaintext"
		"&sasl.mechanisms=PLAIN&sasl.username=u%26v&sasl.password=p%40ss",
		channels, 1);
	char why[256] = "";

	(void)state;
	assert_true(bus->ops->start(bus, why, sizeof(why)));
	bus->ops->free(bus);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bad_url_is_refused_with_a_sentence),
		cmocka_unit_test(options_reach_the_library),
	};

	return cmocka_run_group_tests_name("kafka urls", tests, NULL, NULL);
}

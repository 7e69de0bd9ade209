/*
 * Connecting to RabbitMQ: wrong passwords, TLS certificates, and what a URL may say. On a real
 * broker, see rabbitmq_server.h.
 */
#include <stdio.h>
#include <string.h>

#include "adapters/bus/rabbitmq/rabbitmq_bus.h"
#include "captured_log.h"
#include "check.h"
#include "rabbitmq_fixture.h"
#include "rabbitmq_server.h"

static void a_wrong_password_is_complained_about_and_not_told(void **state)
{
	struct rabbitmq_fixture *fixture = rabbitmq_fixture_new();
	char url[160];

	(void)state;
	snprintf(url, sizeof(url), "amqp://guest:s3cr%%65t@%s",
		rabbitmq_server_url() + strlen("amqp://"));
	bus_fixture_log_begin();
	rabbitmq_fixture_open(fixture, url);
	rabbitmq_fixture_wait_for_failures(2);
	assert_false(bus_fixture_is_up(&fixture->base));
	bus_fixture_close(&fixture->base);
	assert_true(captured_log_count("ACCESS_REFUSED") > 0);
	assert_int_equal(captured_log_count("s3cr"), 0);
	bus_fixture_log_end();
	rabbitmq_fixture_free(fixture);
}

static void assert_works(const char *url)
{
	struct rabbitmq_fixture *fixture = rabbitmq_fixture_new();

	rabbitmq_fixture_open(fixture, url);
	bus_fixture_wait_until(&fixture->base, true);
	bus_fixture_publish_all(&fixture->base, 100, BUS_CONFIRMED);
	rabbitmq_fixture_assert_fates(fixture);
	bus_fixture_close(&fixture->base);
	rabbitmq_fixture_free(fixture);
}

static void assert_does_not_work(const char *url)
{
	struct rabbitmq_fixture *fixture = rabbitmq_fixture_new();

	bus_fixture_log_begin();
	rabbitmq_fixture_open(fixture, url);
	rabbitmq_fixture_wait_for_failures(2);
	assert_false(bus_fixture_is_up(&fixture->base));
	bus_fixture_close(&fixture->base);
	bus_fixture_log_end();
	rabbitmq_fixture_free(fixture);
}

static void tls_works_and_checks_who_is_there(void **state)
{
	const char *url = rabbitmq_server_tls_url();
	struct slice options = slice_of(url ? url : "");
	struct slice place = slice_cut(&options, '?');
	struct slice port = place;
	char other[320];

	(void)state;
	if (!url)
		skip_because("there is no openssl to make a certificate");
	assert_works(url);
	snprintf(other, sizeof(other), "%.*s?verify=none", (int)place.len, place.data);
	assert_works(other);
	snprintf(other, sizeof(other), "%.*s", (int)place.len, place.data);
	assert_does_not_work(other); /* nobody has signed this certificate */
	slice_cut(&port, ':');
	slice_cut(&port, ':');
	snprintf(other, sizeof(other), "amqps://127.0.0.1:%.*s?%.*s", (int)port.len, port.data,
		(int)options.len, options.data);
	assert_does_not_work(other); /* it is for another name */
}

static const char *const bad_urls[] = {
	"amqp:/localhost",
	"amqp://",
	"http://localhost",
	"amqp://:5672",
	"amqp://host:0",
	"amqp://host:70000",
	"amqp://host:secret",
	"amqp://user@host",
	"amqp://:secret@host",
	"amqp://user:secret@",
	"amqp://user:se@cret@host",
	"amqp://user:secret%2@host",
	"amqp://user:secret%00@host",
	"amqp://user:secret%zz@host",
	"amqp://1,2,3,4,5,6,7,8,9",
	"amqp://host?queues=secret",
	"amqp://[::1",
	"amqp://[::1]secret",
	"amqp://host/a/b",
	"amqp://host/%zz",
	"amqp://host?heartbeat",
	"amqp://host?heartbeat=",
	"amqp://host?heartbeat=0",
	"amqp://host?heartbeat=secret",
	"amqp://host?password=secret",
	"amqp://host?verify=none",
	"amqps://host?verify=secret",
	"amqps://host?nonsense=secret",
	"amqps://host?cert=/only",
	"amqps://host?cacert=/no/such/file",
	"amqps://host?cert=/no/such/file&key=/no/such/file",
};

static void a_bad_url_is_refused_with_a_sentence(void **state)
{
	static const struct bus_channel channels[] = {{.name = "events"}};

	(void)state;
	for (size_t i = 0; i < sizeof(bad_urls) / sizeof(bad_urls[0]); i++) {
		struct bus *bus = rabbitmq_bus_new("faults", bad_urls[i], channels, 1);
		char why[256] = "";

		if (bus->ops->start(bus, why, sizeof(why)))
			fail_msg("%s was accepted", bad_urls[i]);
		if (strlen(why) < 10 || strstr(why, "secret"))
			fail_msg("%s: %s", bad_urls[i], why);
		bus->ops->free(bus);
	}
}

static void every_part_of_a_url_is_understood(void **state)
{
	static const char *const around[][2] = {
		{"amqp://", ""},
		{"amqp://", "/"},
		{"amqp://", "/%2f"},
		{"amqp://guest:gu%65st@", "/%2F?heartbeat=5"},
		{"amqp://guest:guest@127.0.0.1:1,", "?queues=classic"},
	};
	const char *address = rabbitmq_server_url() + strlen("amqp://");
	char url[160];

	(void)state;
	for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
		snprintf(url, sizeof(url), "%s%s%s", around[i][0], address, around[i][1]);
		assert_works(url);
	}
	snprintf(url, sizeof(url), "amqp://%s/nobody-has-made-this", address);
	assert_does_not_work(url);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_password_is_complained_about_and_not_told),
		cmocka_unit_test(tls_works_and_checks_who_is_there),
		cmocka_unit_test(a_bad_url_is_refused_with_a_sentence),
		cmocka_unit_test(every_part_of_a_url_is_understood),
	};
	int failed;

	rabbitmq_server_start();
	failed = cmocka_run_group_tests_name("rabbitmq login faults", tests, NULL, NULL);
	rabbitmq_server_end();
	return failed;
}

/* What a webhook signs, where it may not go, and when it comes again. */
#include "webhook_fixture.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "waiting.h"

/* ---- signatures -------------------------------------------------------------------------- */

/* The example of the specification of Standard Webhooks, and a second secret of 24 bytes. */
#define SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define OTHER_SECRET "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

static char *write_secrets(const char *text)
{
	char *path = qp_strdup("/tmp/quipu-secrets-XXXXXX");
	int file = mkstemp(path);

	assert_true(file >= 0);
	assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
	close(file);
	return path;
}

static struct webhook_secrets *open_secrets(const char *text, char *why, size_t size)
{
	char *path = write_secrets(text);
	struct webhook_secrets *secrets = webhook_secrets_open(path, why, size);

	unlink(path);
	free(path);
	return secrets;
}

static void a_signature_is_that_of_the_specifications_example(void **state)
{
	static const struct webhook_content content = {
		.id = SLICE("msg_p5jXN8AQM9LWM0D4loKWxJek"),
		.timestamp_s = 1614265330,
		.body = SLICE("{\"test\": 2432232314}"),
	};
	char why[256], text[WEBHOOK_SIGNATURES_SIZE];
	struct webhook_secrets *secrets = open_secrets("# ours\n" SECRET "\n\n", why, sizeof(why));

	(void)state;
	assert_non_null(secrets);
	webhook_secrets_sign(secrets, &content, text);
	assert_string_equal(text, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
	webhook_secrets_free(secrets);
}

static void every_request_has_an_id_a_time_and_one_signature_for_each_secret(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct webhook_limits signing = webhook_patient;
	char why[256], signature[256] = "", stamp[64] = "";
	struct hook_request request;

	signing.secrets = open_secrets(SECRET "\n" OTHER_SECRET "\n", why, sizeof(why));
	webhook_limit_to(fixture, &signing);
	webhook_assert_fate(fixture, "200.a", NOTICE_SENT, "");
	request = hook_server_request(fixture->server, 0);
	webhook_assert_header(&request, "webhook-id", "200.a");
	assert_true(hook_request_header(&request, "webhook-timestamp", stamp, sizeof(stamp)));
	assert_true(atoll(stamp) > 1767855000);
	assert_true(
		hook_request_header(&request, "webhook-signature", signature, sizeof(signature)));
	assert_int_equal(strlen(signature), 47 + 1 + 47);
	assert_memory_equal(signature + 48, "v1,", 3);
	fixture->notifier->ops->free(fixture->notifier);
	fixture->notifier = NULL;
	webhook_secrets_free(signing.secrets);
}

static void without_secrets_nothing_is_signed(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct hook_request request;

	webhook_assert_fate(fixture, "200.a", NOTICE_SENT, "");
	request = hook_server_request(fixture->server, 0);
	webhook_assert_header(&request, "webhook-id", "200.a");
	webhook_assert_header(&request, "webhook-signature", NULL);
}

static void a_file_of_secrets_that_cannot_be_used_is_refused_without_showing_it(void **state)
{
	static const char *const cases[][2] = {
		{"", "it has no secret"},
		{"# only a comment\n", "it has no secret"},
		{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with whsec_"},
		{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "24 to 64 bytes in base64"},
		{"whsec_MfKQ", "24 to 64 bytes in base64"},
		{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!", "24 to 64 bytes in base64"},
		{SECRET "\n" SECRET "\n" SECRET, "more than two"},
	};
	char why[256];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (open_secrets(cases[i][0], why, sizeof(why)))
			fail_msg("accepted: %s", cases[i][0]);
		if (!strstr(why, cases[i][1]) || strstr(why, "MfKQ"))
			fail_msg("%s: %s", cases[i][0], why);
	}
	assert_null(webhook_secrets_open("/nonexistent/file", why, sizeof(why)));
	assert_non_null(strstr(why, "cannot be read"));
}

static void secrets_that_are_read_again_replace_the_old_ones_and_bad_ones_do_not(void **state)
{
	static const struct webhook_content content = {.id = SLICE("a"), .body = SLICE("{}")};
	char *path = write_secrets(SECRET "\n");
	char why[256], before[WEBHOOK_SIGNATURES_SIZE], after[WEBHOOK_SIGNATURES_SIZE];
	struct webhook_secrets *secrets = webhook_secrets_open(path, why, sizeof(why));
	FILE *file;

	(void)state;
	webhook_secrets_sign(secrets, &content, before);
	file = fopen(path, "w");
	fputs("nothing\n", file);
	fclose(file);
	assert_false(webhook_secrets_reload(secrets, why, sizeof(why)));
	webhook_secrets_sign(secrets, &content, after);
	assert_string_equal(after, before);
	file = fopen(path, "w");
	fputs(OTHER_SECRET "\n", file);
	fclose(file);
	assert_true(webhook_secrets_reload(secrets, why, sizeof(why)));
	webhook_secrets_sign(secrets, &content, after);
	assert_string_not_equal(after, before);
	webhook_secrets_free(secrets);
	unlink(path);
	free(path);
}

/* ---- where requests may go, and when again ----------------------------------------------- */

static void a_link_local_address_is_never_connected_to(void **state)
{
	static const char *const urls[] = {"http://169.254.1.1/latest/meta-data",
		"http://[fe80::1]/", "http://[::ffff:169.254.1.1]/", "http://[fd00:ec2::254]/",
		"http://0xa9fe0101/"};
	struct notifier_fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(urls); i++) {
		webhook_go_to(fixture, urls[i], &webhook_patient);
		webhook_assert_fate(fixture, "200.a", NOTICE_FAILED,
			"the host has a link-local address, which webhooks may not use");
	}
	assert_int_equal(hook_server_count(fixture->server), 0);
}

static const struct {
	const char *name;
	const char *address;
} hosts[] = {{"linked.test", "169.254.1.1"}, {"neighbour.test", "fe80::1"},
	{"receiver.test", "127.0.0.1"}};

typedef int resolver(const char *name, const char *service, const struct addrinfo *hints,
	struct addrinfo **found);

/* Takes the place of libc's function, also for libcurl: knows the names in `hosts`. None of them is
 * the address of a metadata service, so that a check that fails reaches nobody. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
	struct addrinfo **found)
{
	resolver *next = (resolver *)dlsym(RTLD_NEXT, "getaddrinfo");

	for (size_t i = 0; name && i < COUNT_OF(hosts); i++) {
		if (strcmp(name, hosts[i].name) == 0)
			name = hosts[i].address;
	}
	return next(name, service, hints, found);
}

static void a_name_with_a_link_local_address_is_never_connected_to(void **state)
{
	static const char *const urls[] = {"http://linked.test/", "http://neighbour.test/"};
	struct notifier_fixture *fixture = *state;
	char url[64];

	for (size_t i = 0; i < COUNT_OF(urls); i++) {
		webhook_go_to(fixture, urls[i], &webhook_patient);
		webhook_assert_fate(fixture, "200.a", NOTICE_FAILED,
			"the host has a link-local address, which webhooks may not use");
	}
	assert_int_equal(hook_server_count(fixture->server), 0);
	snprintf(url, sizeof(url), "http://receiver.test:%d/hook",
		hook_server_port(fixture->server));
	webhook_go_to(fixture, url, &webhook_patient);
	webhook_assert_fate(fixture, "200.a", NOTICE_SENT, "");
}

static void only_a_notice_without_a_connection_has_not_reached_the_receiver(void **state)
{
	struct notifier_fixture *fixture = *state;

	assert_false(webhook_try(fixture, "500.a")->is_unreachable);
	assert_false(webhook_try(fixture, "close.a")->is_unreachable);
	webhook_go_to(fixture, "http://127.0.0.1:1/", &webhook_patient);
	assert_true(webhook_try(fixture, "200.a")->is_unreachable);
	webhook_go_to(fixture, "http://169.254.1.1/", &webhook_patient);
	assert_true(webhook_try(fixture, "200.a")->is_unreachable);
}

static void retry_after_is_passed_on_up_to_a_day(void **state)
{
	struct notifier_fixture *fixture = *state;

	assert_true(webhook_try(fixture, "later.a")->retry_after_us == 7 * 1000000LL);
	assert_true(webhook_try(fixture, "never.a")->retry_after_us == 24 * 3600 * 1000000LL);
	assert_true(webhook_try(fixture, "503.a")->retry_after_us == 0);
	assert_true(webhook_try(fixture, "200.a")->retry_after_us == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, webhook_setup, webhook_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_signature_is_that_of_the_specifications_example),
		TEST(every_request_has_an_id_a_time_and_one_signature_for_each_secret),
		TEST(without_secrets_nothing_is_signed),
		TEST(a_file_of_secrets_that_cannot_be_used_is_refused_without_showing_it),
		TEST(secrets_that_are_read_again_replace_the_old_ones_and_bad_ones_do_not),
		TEST(a_link_local_address_is_never_connected_to),
		TEST(a_name_with_a_link_local_address_is_never_connected_to),
		TEST(only_a_notice_without_a_connection_has_not_reached_the_receiver),
		TEST(retry_after_is_passed_on_up_to_a_day),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * What only a webhook does: the request as the receiver sees it, and receivers that refuse, hang,
 * lie and never end.
 */
#include "webhook_fixture.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "private_server.h"
#include "waiting.h"

/* Time so short that a test can wait for its end. */
#define HASTY_MS 1000
static const struct webhook_limits hasty = {.slots = 16, .total_ns = HASTY_MS * NS_PER_MS};

static void give_s(struct notifier_fixture *fixture, int64_t seconds)
{
	const struct webhook_limits limits = {.slots = 16, .total_ns = seconds * NS_PER_S};

	webhook_limit_to(fixture, &limits);
}

/*
 * Waits for the end of a notice's time. Where this machine was too slow to get as far in it as the
 * test wants, it gets twice the time. `error` is followed by the time, unless it is empty.
 */
static void assert_fate_at_the_end(
	struct notifier_fixture *fixture, const char *id, enum notice_fate fate, const char *error)
{
	const struct notice_result *result = NULL;

	for (int64_t seconds = 1; seconds < HANG_S; seconds *= 2) {
		int64_t began_ms = steady_ms();
		char expected[64];

		snprintf(expected, sizeof(expected), *error ? "%s %lld s" : "%s", error,
			(long long)seconds);
		give_s(fixture, seconds);
		result = webhook_try(fixture, id);
		assert_true(steady_ms() - began_ms >= seconds * 1000 - 1);
		if (result->fate == fate && strcmp(result->error, expected) == 0)
			return;
	}
	fail_msg("%s: fate %d, \"%s\"", id, result->fate, result->error);
}

/* ---- the URL ----------------------------------------------------------------------------- */

static void a_url_that_cannot_be_used_is_refused_without_showing_it(void **state)
{
	static const char *const cases[][2] = {
		{"", "must begin with http:// or https://"},
		{"http:/secret", "must begin with http:// or https://"},
		{"secret", "must begin with http:// or https://"},
		{"secret.example/hook", "must begin with http:// or https://"},
		{"ftp://secret.example/", "must begin with http:// or https://"},
		{"file:///etc/secret", "must begin with http:// or https://"},
		{"gopher://secret.example/", "must begin with http:// or https://"},
		{"secret://secret.example/", "must begin with http:// or https://"},
		{"http://", "there must be a host"},
		{"http:///secret", "there must be a host"},
		{"http://?secret", "there must be a host"},
		{"http://u:secret@/hook", "there must be a host"},
		{"http://h:secret/", "not"},
		{"http://h:99999/secret", "not"},
		{"http://se cret/", "not"},
		{"http://h/secret\r\nX: y", "not"},
	};
	char why[256];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (webhook_notifier_new(cases[i][0], NULL, why, sizeof(why)))
			fail_msg("accepted: %s", cases[i][0]);
		if (strncmp(why, "the URL of the webhook cannot be used: ", 39) != 0 ||
			strstr(why, "secret"))
			fail_msg("%s", why);
		if (strcmp(cases[i][1], "not") != 0 && !strstr(why, cases[i][1]))
			fail_msg("%s: %s", cases[i][0], why);
	}
}

static void the_standard_limits_are_64_slots_and_10_seconds(void **state)
{
	char why[256];
	struct notifier *notifier =
		webhook_notifier_new("https://127.0.0.1/", NULL, why, sizeof(why));

	(void)state;
	assert_non_null(notifier);
	assert_string_equal(notifier->engine, "webhook");
	assert_int_equal(notifier->slots, 64);
	assert_in_range(notifier->longest_ns, 10 * NS_PER_S, 11 * NS_PER_S);
	notifier->ops->free(notifier);
}

/* ---- the request ------------------------------------------------------------------------- */

static void the_request_is_a_post_of_json_with_key_and_trace(void **state)
{
	static const char trace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
	struct notifier_fixture *fixture = *state;
	struct notice notice = {.id = SLICE("200.e58ed763-928c-4155-bee9-fdbaaadc15f3"),
		.trace = slice_of(trace),
		.body = SLICE("{\"text\":\"h\xc3\xa4llo\"}")};
	struct hook_request request;

	fixture->notifier->ops->send(fixture->notifier, &notice);
	notifier_fixture_gather(fixture, 1);
	request = hook_server_request(fixture->server, 0);
	assert_int_equal(strncmp(request.head, "POST /hook?from=quipu HTTP/1.1\r\n", 32), 0);
	webhook_assert_header(&request, "Content-Type", "application/json");
	webhook_assert_header(
		&request, "Idempotency-Key", "200.e58ed763-928c-4155-bee9-fdbaaadc15f3");
	webhook_assert_header(&request, "traceparent", trace);
	webhook_assert_header(&request, "User-Agent", "quipu/" QUIPU_VERSION);
	webhook_assert_header(&request, "Expect", NULL);
	webhook_assert_header(&request, "Authorization", NULL);
	assert_string_equal(request.body, "{\"text\":\"h\xc3\xa4llo\"}");
}

static void a_large_body_is_not_announced_first(void **state)
{
	struct notifier_fixture *fixture = *state;
	static char body[100 * 1024];
	struct notice notice = {.id = SLICE("200.a"), .body = slice_make(body, sizeof(body))};
	struct hook_request request;

	memset(body, 'a', sizeof(body));
	fixture->notifier->ops->send(fixture->notifier, &notice);
	notifier_fixture_gather(fixture, 1);
	request = hook_server_request(fixture->server, 0);
	assert_int_equal(request.body_len, sizeof(body));
	webhook_assert_header(&request, "Expect", NULL);
}

static void every_try_has_the_same_key(void **state)
{
	struct notifier_fixture *fixture = *state;

	for (size_t i = 0; i < 3; i++) {
		struct hook_request request;

		webhook_assert_fate(fixture, "500.the-id", NOTICE_FAILED, "HTTP 500");
		request = hook_server_request(fixture->server, i);
		webhook_assert_header(&request, "Idempotency-Key", "500.the-id");
		webhook_assert_header(&request, "traceparent", NULL);
		assert_string_equal(request.body, "{\"user_id\":\"u\"}");
	}
}

static void the_trace_of_one_notice_does_not_stay_for_the_next(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct notice notice = {.id = SLICE("200.a"), .trace = SLICE("00-a-b-01")};
	struct hook_request request;

	fixture->notifier->ops->send(fixture->notifier, &notice);
	notifier_fixture_gather(fixture, 1);
	webhook_try(fixture, "200.b");
	request = hook_server_request(fixture->server, 1);
	webhook_assert_header(&request, "traceparent", NULL);
	webhook_assert_header(&request, "Idempotency-Key", "200.b");
}

static void nothing_can_be_smuggled_into_the_head(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct notice notice = {.id = SLICE("200.a"), .trace = SLICE("00\r\nX-Evil: 1")};
	struct hook_request request;

	fixture->notifier->ops->send(fixture->notifier, &notice);
	notifier_fixture_gather(fixture, 1);
	request = hook_server_request(fixture->server, 0);
	webhook_assert_header(&request, "X-Evil", NULL);
	webhook_assert_header(&request, "traceparent", NULL);
	webhook_assert_fate(
		fixture, "200.a\r\nX-Evil: 1", NOTICE_REFUSED, "the id cannot be sent in a header");
	webhook_assert_fate(fixture, "", NOTICE_REFUSED, "the id cannot be sent in a header");
	assert_int_equal(hook_server_count(fixture->server), 1);
	webhook_assert_fate(fixture, "200.b", NOTICE_SENT, "");
}

static void credentials_of_the_url_are_sent_and_nowhere_else(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct hook_request request;
	char url[128];

	snprintf(url, sizeof(url), "http://us%%40er:pass@127.0.0.1:%d/hook#part",
		hook_server_port(fixture->server));
	webhook_go_to(fixture, url, &webhook_patient);
	webhook_assert_fate(fixture, "401.a", NOTICE_REFUSED, "HTTP 401");
	request = hook_server_request(fixture->server, 0);
	webhook_assert_header(&request, "Authorization", "Basic dXNAZXI6cGFzcw==");
	assert_int_equal(strncmp(request.head, "POST /hook HTTP/1.1\r\n", 21), 0);
}

static void proxies_of_the_environment_are_not_used(void **state)
{
	struct notifier_fixture *fixture = *state;

	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
	webhook_assert_fate(fixture, "200.a", NOTICE_SENT, "");
	unsetenv("http_proxy");
	unsetenv("ALL_PROXY");
}

/* ---- statuses ---------------------------------------------------------------------------- */

static void the_status_decides(void **state)
{
	static const struct {
		const char *id;
		enum notice_fate fate;
		const char *error;
	} cases[] = {
		{"200.a", NOTICE_SENT, ""},
		{"201.a", NOTICE_SENT, ""},
		{"202.a", NOTICE_SENT, ""},
		{"204.a", NOTICE_SENT, ""},
		{"299.a", NOTICE_SENT, ""},
		{"300.a", NOTICE_FAILED, "HTTP 300"},
		{"304.a", NOTICE_FAILED, "HTTP 304"},
		{"400.a", NOTICE_REFUSED, "HTTP 400"},
		{"401.a", NOTICE_REFUSED, "HTTP 401"},
		{"404.a", NOTICE_REFUSED, "HTTP 404"},
		{"407.a", NOTICE_REFUSED, "HTTP 407"},
		{"408.a", NOTICE_FAILED, "HTTP 408"},
		{"409.a", NOTICE_REFUSED, "HTTP 409"},
		{"410.a", NOTICE_REFUSED, "HTTP 410"},
		{"413.a", NOTICE_REFUSED, "HTTP 413"},
		{"417.a", NOTICE_REFUSED, "HTTP 417"},
		{"425.a", NOTICE_FAILED, "HTTP 425"},
		{"429.a", NOTICE_FAILED, "HTTP 429"},
		{"499.a", NOTICE_REFUSED, "HTTP 499"},
		{"500.a", NOTICE_FAILED, "HTTP 500"},
		{"503.a", NOTICE_FAILED, "HTTP 503"},
		{"599.a", NOTICE_FAILED, "HTTP 599"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
		webhook_assert_fate(*state, cases[i].id, cases[i].fate, cases[i].error);
}

static void a_redirect_is_not_followed(void **state)
{
	struct notifier_fixture *fixture = *state;

	webhook_assert_fate(fixture, "moved.a", NOTICE_FAILED, "HTTP 302");
	assert_int_equal(hook_server_count(fixture->server), 1);
}

static void what_comes_before_the_answer_is_not_the_answer(void **state)
{
	struct notifier_fixture *fixture = *state;

	webhook_assert_fate(fixture, "early.a", NOTICE_SENT, "");
	webhook_assert_fate(
		fixture, "earlycut.a", NOTICE_FAILED, "the connection was lost before the answer");
}

/* ---- connections ------------------------------------------------------------------------- */

static void a_connection_is_used_again(void **state)
{
	struct notifier_fixture *fixture = *state;

	for (size_t i = 0; i < 5; i++) {
		webhook_try(fixture, i % 2 ? "500.a" : "full.a");
		assert_int_equal(hook_server_request(fixture->server, i).connection, 1);
	}
}

static void a_connection_that_was_closed_meanwhile_is_made_anew(void **state)
{
	struct notifier_fixture *fixture = *state;

	for (int i = 0; i < 5; i++)
		webhook_assert_fate(fixture, "close.a", NOTICE_FAILED,
			"the connection was lost before the answer");
	webhook_assert_fate(fixture, "200.a", NOTICE_SENT, "");
}

static void a_hanging_notice_does_not_hold_up_the_others(void **state)
{
	struct notifier_fixture *fixture = *state;

	for (uint64_t i = 0; i < webhook_patient.slots - 1; i++)
		notifier_fixture_send(fixture, "hang.a", i);
	for (uint64_t i = 100; i < 120; i++) {
		notifier_fixture_send(fixture, "200.a", i);
		notifier_fixture_gather(fixture, i - 99);
		assert_int_equal(notifier_fixture_result(fixture, i)->fate, NOTICE_SENT);
	}
}

/* Returns false if it was not enough time on this machine. */
static bool all_kinds_get_their_own_result(struct notifier_fixture *fixture, int64_t seconds)
{
	static const char *const ids[] = {"hang.a", "200.a", "trickle.a", "404.a", "dribble.a",
		"cuthead.a", "headers.a", "endless.a", "503.a", "early.a"};
	static const enum notice_fate fates[] = {NOTICE_FAILED, NOTICE_SENT, NOTICE_FAILED,
		NOTICE_REFUSED, NOTICE_SENT, NOTICE_FAILED, NOTICE_FAILED, NOTICE_SENT,
		NOTICE_FAILED, NOTICE_SENT};
	bool is_right = true;

	give_s(fixture, seconds);
	fixture->result_count = 0;
	for (uint64_t i = 0; i < COUNT_OF(ids); i++)
		notifier_fixture_send(fixture, ids[i], i);
	notifier_fixture_gather(fixture, COUNT_OF(ids));
	for (uint64_t i = 0; i < COUNT_OF(ids); i++)
		is_right = is_right && notifier_fixture_result(fixture, i)->fate == fates[i];
	return is_right;
}

static void all_kinds_of_receivers_at_once_each_get_their_own_result(void **state)
{
	int64_t seconds = 3;

	while (!all_kinds_get_their_own_result(*state, seconds))
		assert_true((seconds *= 2) < HANG_S);
}

/* ---- bad answers ------------------------------------------------------------------------- */

static void without_a_complete_head_there_is_no_answer(void **state)
{
	static const char lost[] = "the connection was lost before the answer";
	struct notifier_fixture *fixture = *state;

	webhook_assert_fate(fixture, "close.a", NOTICE_FAILED, lost);
	webhook_assert_fate(fixture, "cuthead.a", NOTICE_FAILED, lost);
	assert_int_equal(webhook_try(fixture, "garbage.a")->fate, NOTICE_FAILED);
	assert_int_equal(webhook_try(fixture, "headers.a")->fate, NOTICE_FAILED);
	webhook_assert_fate(fixture, "200.a", NOTICE_SENT, "");
	assert_fate_at_the_end(fixture, "hang.a", NOTICE_FAILED, "no answer within");
	assert_fate_at_the_end(fixture, "trickle.a", NOTICE_FAILED, "no answer within");
}

static void once_the_head_is_complete_the_status_stands(void **state)
{
	struct notifier_fixture *fixture = *state;

	webhook_assert_fate(fixture, "cutbody.a", NOTICE_SENT, "");
	webhook_assert_fate(fixture, "over.a", NOTICE_SENT, "");
	webhook_assert_fate(
		fixture, "endless.a", NOTICE_SENT, ""); /* though it would go on for ever */
	assert_fate_at_the_end(fixture, "dribble.a", NOTICE_SENT, "");
}

/* ---- no connection ----------------------------------------------------------------------- */

static void a_refused_connection_is_told_as_such(void **state)
{
	struct notifier_fixture *fixture = *state;
	char url[64];
	int holder;

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", private_port(&holder));
	webhook_go_to(fixture, url, &webhook_patient);
	for (int i = 0; i < 3; i++)
		webhook_assert_fate(fixture, "200.a", NOTICE_FAILED, "connection refused");
	close(holder);
}

/* A queue of 0 that holds one connection: Linux drops what else comes. */
static void a_connection_that_is_not_answered_is_given_up(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd, port = private_port(&fd), first = socket(AF_INET, SOCK_STREAM, 0);
	char url[64];

	address.sin_port = htons((uint16_t)port);
	assert_int_equal(listen(fd, 0), 0);
	assert_int_equal(connect(first, (struct sockaddr *)&address, sizeof(address)), 0);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", port);
	webhook_go_to(fixture, url, &hasty);
	webhook_assert_fate(fixture, "200.a", NOTICE_FAILED, "no connection within 1 s");
	close(first);
	close(fd);
}

static void a_certificate_that_is_not_trusted_is_refused(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct hook_server *server = hook_server_start(true);
	char url[64];

	snprintf(url, sizeof(url), "https://127.0.0.1:%d/", hook_server_port(server));
	webhook_go_to(fixture, url, &webhook_patient);
	webhook_assert_fate(fixture, "200.a", NOTICE_FAILED, "the certificate is not trusted");
	hook_server_stop(server);
}

static void a_receiver_without_tls_is_no_receiver_of_https(void **state)
{
	struct notifier_fixture *fixture = *state;
	char url[64];

	snprintf(url, sizeof(url), "https://127.0.0.1:%d/", hook_server_port(fixture->server));
	webhook_go_to(fixture, url, &webhook_patient);
	assert_int_equal(webhook_try(fixture, "200.a")->fate, NOTICE_FAILED);
	assert_string_not_equal(notifier_fixture_result(fixture, 1)->error, "");
	assert_null(strstr(notifier_fixture_result(fixture, 1)->error, "127.0.0.1"));
	assert_int_equal(hook_server_count(fixture->server), 0);
}

/* ---- name servers ------------------------------------------------------------------------ */

static atomic_bool name_server_answers;
static atomic_int resolving;

/* Stands in for libc's: names that end in .test are known to a name server that may hang. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **found)
{
	(void)service;
	(void)hints;
	(void)found;
	if (!node || strcmp(node, "slow.test") != 0)
		return EAI_NONAME;
	atomic_fetch_add(&resolving, 1);
	while (!atomic_load(&name_server_answers))
		wait_a_moment();
	atomic_fetch_sub(&resolving, 1);
	return EAI_AGAIN;
}

static void an_unknown_name_is_told_as_such(void **state)
{
	struct notifier_fixture *fixture = *state;

	webhook_go_to(fixture, "http://nobody.test/", &webhook_patient);
	webhook_assert_fate(fixture, "200.a", NOTICE_FAILED, "the name of the host is not known");
}

/* The libcurl of Debian 12 waits for the name server after all, unless told not to. */
static void a_name_server_that_hangs_costs_no_more_than_the_time(void **state)
{
	struct notifier_fixture *fixture = *state;
	int64_t began_ms = steady_ms();

	atomic_store(&name_server_answers, false);
	webhook_go_to(fixture, "http://slow.test/", &hasty);
	webhook_assert_fate(fixture, "200.a", NOTICE_FAILED, "no connection within 1 s");
	assert_true(steady_ms() - began_ms >= HASTY_MS - 1);
	notifier_fixture_send(fixture, "200.b", 2);
	notifier_fixture_wait(fixture, 50);
	fixture->notifier->ops->free(
		fixture->notifier); /* returns before the name server answers */
	fixture->notifier = NULL;
	assert_true(atomic_load(&resolving) > 0);
	atomic_store(&name_server_answers, true);
	WAIT_UNTIL(atomic_load(&resolving) == 0);
}

/* ---- the end ----------------------------------------------------------------------------- */

static void free_cuts_off_what_is_on_its_way_at_once(void **state)
{
	struct notifier_fixture *fixture = *state;

	for (uint64_t i = 0; i < webhook_patient.slots; i++)
		notifier_fixture_send(fixture, i % 2 ? "hang.a" : "dribble.a", i);
	notifier_fixture_wait(fixture, 50);
	notifier_fixture_wait(fixture, 50);
	hook_server_wait(fixture->server, webhook_patient.slots);
	fixture->notifier->ops->free(fixture->notifier); /* none of them would ever end by itself */
	fixture->notifier = NULL;
}

static void a_notice_that_was_never_waited_for_is_freed(void **state)
{
	struct notifier_fixture *fixture = *state;

	notifier_fixture_send(fixture, "200.a", 1);
	notifier_fixture_send(fixture, "", 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, webhook_setup, webhook_teardown)
		TEST(a_url_that_cannot_be_used_is_refused_without_showing_it),
		TEST(the_standard_limits_are_64_slots_and_10_seconds),
		TEST(the_request_is_a_post_of_json_with_key_and_trace),
		TEST(a_large_body_is_not_announced_first),
		TEST(every_try_has_the_same_key),
		TEST(the_trace_of_one_notice_does_not_stay_for_the_next),
		TEST(nothing_can_be_smuggled_into_the_head),
		TEST(credentials_of_the_url_are_sent_and_nowhere_else),
		TEST(proxies_of_the_environment_are_not_used),
		TEST(the_status_decides),
		TEST(a_redirect_is_not_followed),
		TEST(what_comes_before_the_answer_is_not_the_answer),
		TEST(a_connection_is_used_again),
		TEST(a_connection_that_was_closed_meanwhile_is_made_anew),
		TEST(a_hanging_notice_does_not_hold_up_the_others),
		TEST(all_kinds_of_receivers_at_once_each_get_their_own_result),
		TEST(without_a_complete_head_there_is_no_answer),
		TEST(once_the_head_is_complete_the_status_stands),
		TEST(a_refused_connection_is_told_as_such),
		TEST(a_connection_that_is_not_answered_is_given_up),
		TEST(a_certificate_that_is_not_trusted_is_refused),
		TEST(a_receiver_without_tls_is_no_receiver_of_https),
		TEST(an_unknown_name_is_told_as_such),
		TEST(a_name_server_that_hangs_costs_no_more_than_the_time),
		TEST(free_cuts_off_what_is_on_its_way_at_once),
		TEST(a_notice_that_was_never_waited_for_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* TLS in memory: sessions against OpenSSL's own client, and contexts that are reloaded. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "effort.h"
#include "tls_fixture.h"

#define ALL_AT_ONCE (1024 * 1024)
#define DAY_S 86400

static struct tls_context *context;

static struct tls_context *make_context(const char *certificate, const char *key)
{
	static char paths[2][128];
	char why[TLS_WHY_SIZE];
	struct tls_context *made;

	snprintf(paths[0], sizeof(paths[0]), "%s", tls_fixture_file(certificate));
	snprintf(paths[1], sizeof(paths[1]), "%s", tls_fixture_file(key));
	made = tls_context_new(paths[0], paths[1], why);
	if (!made)
		fail_msg("%s", why);
	return made;
}

static int open_fixture(void **state)
{
	(void)state;
	tls_fixture_open();
	return 0;
}

static int close_fixture(void **state)
{
	(void)state;
	tls_fixture_close();
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	tls_fixture_make_certificate("one", 30);
	context = make_context("one.pem", "one.key");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	tls_context_free(context);
	return 0;
}

static void begin_open(struct talk *talk, int version, size_t step)
{
	talk_begin(talk, context, version, step);
	assert_int_equal(talk_shake_hands(talk), TLS_OPEN);
}

static void assert_metric(const char *line)
{
	struct arena arena;
	struct buffer page;

	arena_init(&arena, 4096);
	page = buffer_make(&arena, 1024);
	tls_collect(context, &page);
	assert_contains(buffer_slice(&page), line);
	arena_release(&arena);
}

/* ---- talking ----------------------------------------------------------------------------- */

static void both_sides_understand_each_other_however_bytes_arrive(void **state)
{
	const size_t steps[] = {1, 7, 1000, ALL_AT_ONCE};
	const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
	struct talk talk;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(steps); i++) {
		for (size_t j = 0; j < COUNT_OF(versions); j++) {
			begin_open(&talk, versions[j], steps[i]);
			assert_int_equal(SSL_version(talk.client), versions[j]);
			talk_say(&talk, slice_of("a question"));
			talk_say(&talk, slice_of(", and more"));
			talk_answer(&talk, slice_of("an answer"));
			assert_slice(buffer_slice(&talk.at_server), "a question, and more");
			assert_slice(buffer_slice(&talk.at_client), "an answer");
			talk_end(&talk);
		}
	}
	assert_metric("quipu_tls_handshakes_total{result=\"ok\"} 8\n");
}

/* Many records at once, and records that are cut anywhere. */
static void large_texts_pass_whole_in_both_directions(void **state)
{
	const size_t steps[] = {4099, 16 * 1024, 64 * 1024, ALL_AT_ONCE};
	const size_t len = 300 * 1024;
	char *text = malloc(len);
	struct talk talk;

	(void)state;
	for (size_t i = 0; i < len; i++)
		text[i] = (char)('a' + i % 23);
	for (size_t i = 0; i < COUNT_OF(steps); i++) {
		begin_open(&talk, 0, steps[i]);
		talk_say(&talk, slice_make(text, len));
		talk_answer(&talk, slice_make(text, len));
		assert_int_equal(talk.at_server.len, len);
		assert_int_equal(talk.at_client.len, len);
		assert_memory_equal(talk.at_server.data, text, len);
		assert_memory_equal(talk.at_client.data, text, len);
		talk_end(&talk);
	}
	free(text);
}

static void a_client_that_ends_still_gets_its_answer_and_our_end(void **state)
{
	struct talk talk;

	(void)state;
	begin_open(&talk, 0, ALL_AT_ONCE);
	SSL_write(talk.client, "last words", 10);
	SSL_shutdown(talk.client);
	talk_carry(&talk);
	assert_int_equal(tls_session_state(talk.session), TLS_ENDED);
	assert_slice(buffer_slice(&talk.at_server), "last words");
	talk_answer(&talk, slice_of("an answer"));
	assert_slice(buffer_slice(&talk.at_client), "an answer");
	tls_session_end(talk.session);
	talk_carry(&talk);
	assert_true(SSL_get_shutdown(talk.client) & SSL_RECEIVED_SHUTDOWN);
	talk_end(&talk);
}

static void our_end_is_said_once(void **state)
{
	struct talk talk;
	size_t len;
	char *bytes;

	(void)state;
	begin_open(&talk, 0, ALL_AT_ONCE);
	tls_session_end(talk.session);
	bytes = tls_session_take_output(talk.session, &len);
	assert_non_null(bytes);
	free(bytes);
	tls_session_end(talk.session);
	assert_null(tls_session_take_output(talk.session, &len));
	talk_end(&talk);
}

static void a_client_can_ask_for_new_keys(void **state)
{
	struct talk talk;

	(void)state;
	begin_open(&talk, TLS1_3_VERSION, 1);
	SSL_key_update(talk.client, SSL_KEY_UPDATE_REQUESTED);
	talk_say(&talk, slice_of("a question"));
	talk_answer(&talk, slice_of("an answer"));
	assert_slice(buffer_slice(&talk.at_server), "a question");
	assert_slice(buffer_slice(&talk.at_client), "an answer");
	talk_end(&talk);
}

/* ---- what is refused --------------------------------------------------------------------- */

static void old_versions_are_refused_with_an_alert(void **state)
{
	struct talk talk;

	(void)state;
	talk_begin(&talk, context, TLS1_1_VERSION, 1);
	assert_int_equal(talk_shake_hands(&talk), TLS_BROKEN);
	assert_false(SSL_is_init_finished(talk.client));
	assert_false(tls_session_write(talk.session, slice_of("never")));
	talk_end(&talk);
	assert_metric("quipu_tls_handshakes_total{result=\"failed\"} 1\n");
}

static void a_client_that_speaks_another_protocol_only_is_refused(void **state)
{
	struct talk talk;

	(void)state;
	talk_begin(&talk, context, 0, ALL_AT_ONCE);
	SSL_set_alpn_protos(talk.client, (const unsigned char *)"\x02h3", 3);
	assert_int_equal(talk_shake_hands(&talk), TLS_BROKEN);
	talk_end(&talk);
}

static void http_2_is_chosen_if_the_client_offers_it(void **state)
{
	const unsigned char *chosen;
	struct talk talk;
	unsigned len;

	(void)state;
	talk_begin(&talk, context, 0, ALL_AT_ONCE);
	SSL_set_alpn_protos(talk.client, (const unsigned char *)"\x02h2\x08http/1.1", 12);
	assert_int_equal(talk_shake_hands(&talk), TLS_OPEN);
	SSL_get0_alpn_selected(talk.client, &chosen, &len);
	assert_slice(slice_make(chosen, len), "h2");
	assert_true(tls_session_chose_http2(talk.session));
	talk_end(&talk);
}

static void without_an_offer_http_1_1_is_spoken(void **state)
{
	struct talk talk;

	(void)state;
	begin_open(&talk, 0, ALL_AT_ONCE);
	assert_false(tls_session_chose_http2(talk.session));
	talk_end(&talk);
}

static void nobody_renegotiates(void **state)
{
	struct talk talk;

	(void)state;
	begin_open(&talk, TLS1_2_VERSION, ALL_AT_ONCE);
	SSL_renegotiate(talk.client);
	SSL_do_handshake(talk.client);
	talk_carry(&talk);
	assert_int_not_equal(SSL_get_state(talk.client), TLS_ST_OK);
	talk_end(&talk);
}

static void garbage_is_broken_whatever_it_is(void **state)
{
	const struct slice garbage[] = {SLICE("\x16\x03\x01\x00\x05hello world"),
		SLICE("\x80\x00\x00\x00\x00\x00\x00\x00"),
		SLICE("\x16\x03\x01\xff\xff\x01\x02\x03\x04"),
		SLICE("\x00\x00\x00\x00\x00\x00\x00"), SLICE("\x15\x03\x03\x00\x02\x02\x28"),
		SLICE("hello there, server")};
	struct talk talk;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(garbage); i++) {
		talk_begin(&talk, context, 0, 1);
		talk_inject(&talk, garbage[i].data, garbage[i].len);
		assert_int_equal(tls_session_state(talk.session), TLS_BROKEN);
		talk_inject(&talk, garbage[i].data, garbage[i].len);
		assert_int_equal(talk.at_server.len, 0);
		talk_end(&talk);
	}
	assert_metric("quipu_tls_handshakes_total{result=\"failed\"} 6\n");
}

static void http_in_the_clear_is_noticed_at_its_first_byte(void **state)
{
	struct talk talk;
	size_t len;

	(void)state;
	talk_begin(&talk, context, 0, 1);
	talk_inject(&talk, "D", 1);
	assert_int_equal(tls_session_state(talk.session), TLS_PLAIN);
	assert_null(tls_session_take_output(talk.session, &len));
	talk_end(&talk);
	assert_metric("quipu_tls_handshakes_total{result=\"plain_http\"} 1\n");
}

static void a_record_that_was_changed_on_its_way_breaks_the_session(void **state)
{
	struct talk talk;
	char bytes[256];
	int len;

	(void)state;
	begin_open(&talk, 0, ALL_AT_ONCE);
	SSL_write(talk.client, "a question", 10);
	len = BIO_read(SSL_get_wbio(talk.client), bytes, sizeof(bytes));
	bytes[len - 1] ^= 1;
	talk_inject(&talk, bytes, (size_t)len);
	assert_int_equal(tls_session_state(talk.session), TLS_BROKEN);
	assert_int_equal(talk.at_server.len, 0);
	assert_false(tls_session_write(talk.session, slice_of("never")));
	talk_end(&talk);
}

static void handshakes_that_never_end_are_counted(void **state)
{
	struct talk talk;

	(void)state;
	talk_begin(&talk, context, 0, 1);
	talk_end(&talk); /* the client sent nothing, so nothing is counted */
	talk_begin(&talk, context, 0, 1);
	talk_inject(&talk, "\x16", 1);
	talk_end(&talk);
	talk_begin(&talk, context, 0, 1);
	talk_inject(&talk, "\x16", 1);
	tls_session_time_out(talk.session);
	talk_end(&talk);
	assert_metric("quipu_tls_handshakes_total{result=\"timeout\"} 1\n"
		      "quipu_tls_handshakes_total{result=\"gone\"} 1\n");
}

/* ---- certificates ------------------------------------------------------------------------ */

static void a_new_certificate_is_for_new_sessions(void **state)
{
	char why[TLS_WHY_SIZE];
	struct talk before, after;

	(void)state;
	tls_fixture_make_certificate("changing", 30);
	tls_context_free(context);
	context = make_context("changing.pem", "changing.key");
	begin_open(&before, 0, ALL_AT_ONCE);
	tls_fixture_make_certificate("two", 30);
	tls_fixture_join("changing.pem", "two.pem", "one.pem");
	tls_fixture_write("empty", "");
	tls_fixture_join("changing.key", "two.key", "empty");
	assert_true(tls_context_reload(context, why));
	begin_open(&after, 0, ALL_AT_ONCE);
	assert_string_equal(talk_certificate(&before), "changing");
	assert_string_equal(talk_certificate(&after), "two");
	talk_say(&before, slice_of("still here"));
	talk_answer(&before, slice_of("so are we"));
	assert_slice(buffer_slice(&before.at_server), "still here");
	assert_slice(buffer_slice(&before.at_client), "so are we");
	talk_end(&before);
	talk_end(&after);
}

static void assert_refused(const char *certificate, const char *key, const char *sentence)
{
	char why[TLS_WHY_SIZE] = "";

	assert_null(tls_context_new(tls_fixture_file(certificate), tls_fixture_file(key), why));
	assert_contains(slice_of(why), sentence);
}

static void files_that_cannot_be_used_are_refused_in_words(void **state)
{
	(void)state;
	tls_fixture_make_certificate("other", 30);
	tls_fixture_make_certificate("locked", 30);
	tls_fixture_encrypt_key("locked");
	tls_fixture_write("nonsense", "-----BEGIN NONSENSE-----\n");
	assert_refused("absent", "one.key", "cannot read the certificate");
	assert_refused("one.pem", "absent", "cannot read the private key");
	assert_refused("nonsense", "one.key", "cannot be used as a certificate");
	assert_refused("one.pem", "nonsense", "cannot be used as a private key");
	assert_refused("one.pem", "other.key", "does not match the certificate");
	assert_refused("locked.pem", "locked.key", "is encrypted");
}

static void a_failed_reload_leaves_everything_as_it_was(void **state)
{
	char why[TLS_WHY_SIZE];
	int64_t expires_s;
	struct talk talk;

	(void)state;
	tls_fixture_make_certificate("changing", 30);
	tls_context_free(context);
	context = make_context("changing.pem", "changing.key");
	expires_s = tls_context_expires_s(context);
	tls_fixture_make_certificate("two", 60);
	tls_fixture_join("changing.pem", "two.pem", "two.pem");
	assert_false(tls_context_reload(context, why));
	assert_int_equal(tls_context_expires_s(context), expires_s);
	begin_open(&talk, 0, ALL_AT_ONCE);
	assert_string_equal(talk_certificate(&talk), "changing");
	talk_end(&talk);
}

static void the_first_of_the_chain_to_expire_counts(void **state)
{
	int64_t now_s = time(NULL);
	char line[128];

	(void)state;
	tls_fixture_make_certificate("authority", 5);
	tls_fixture_join("chain.pem", "one.pem", "authority.pem");
	assert_in_range(tls_context_expires_s(context), now_s + 29 * DAY_S, now_s + 31 * DAY_S);
	tls_context_free(context);
	context = make_context("chain.pem", "one.key");
	assert_in_range(tls_context_expires_s(context), now_s + 4 * DAY_S, now_s + 6 * DAY_S);
	snprintf(line, sizeof(line), "quipu_tls_certificate_expires_seconds %lld\n",
		(long long)tls_context_expires_s(context));
	assert_metric(line);
}

/* ---- threads ----------------------------------------------------------------------------- */

static atomic_bool stop_talking;

static void *talk_on(void *ignored)
{
	size_t *count = calloc(1, sizeof(*count));

	(void)ignored;
	while (!atomic_load(&stop_talking) || *count == 0) {
		struct talk talk;

		talk_begin(&talk, context, 0, 100);
		must(talk_shake_hands(&talk) == TLS_OPEN, "hands are shaken");
		talk_say(&talk, slice_of("a question"));
		talk_answer(&talk, slice_of("an answer"));
		*count += slice_is(buffer_slice(&talk.at_client), "an answer");
		talk_end(&talk);
	}
	return count;
}

static void threads_talk_while_the_files_are_read_again(void **state)
{
	char why[TLS_WHY_SIZE];
	pthread_t threads[3];
	void *count;

	(void)state;
	atomic_store(&stop_talking, false);
	for (size_t i = 0; i < COUNT_OF(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, talk_on, NULL), 0);
	for (size_t i = 0; i < effort(20, 500); i++)
		assert_true(tls_context_reload(context, why));
	atomic_store(&stop_talking, true);
	for (size_t i = 0; i < COUNT_OF(threads); i++) {
		pthread_join(threads[i], &count);
		assert_true(*(size_t *)count > 0);
		free(count);
	}
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(both_sides_understand_each_other_however_bytes_arrive),
		TEST(large_texts_pass_whole_in_both_directions),
		TEST(a_client_that_ends_still_gets_its_answer_and_our_end),
		TEST(our_end_is_said_once),
		TEST(a_client_can_ask_for_new_keys),
		TEST(old_versions_are_refused_with_an_alert),
		TEST(a_client_that_speaks_another_protocol_only_is_refused),
		TEST(http_2_is_chosen_if_the_client_offers_it),
		TEST(without_an_offer_http_1_1_is_spoken),
		TEST(nobody_renegotiates),
		TEST(garbage_is_broken_whatever_it_is),
		TEST(http_in_the_clear_is_noticed_at_its_first_byte),
		TEST(a_record_that_was_changed_on_its_way_breaks_the_session),
		TEST(handshakes_that_never_end_are_counted),
		TEST(a_new_certificate_is_for_new_sessions),
		TEST(files_that_cannot_be_used_are_refused_in_words),
		TEST(a_failed_reload_leaves_everything_as_it_was),
		TEST(the_first_of_the_chain_to_expire_counts),
		TEST(threads_talk_while_the_files_are_read_again),
	};

	return cmocka_run_group_tests_name("tls", tests, open_fixture, close_fixture);
}

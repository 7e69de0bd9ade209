/* Where a setting comes from, and the message if it is wrong. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/options.h"

#define ARGUMENTS_MAX 8

struct fixture {
	struct settings settings;
	struct operands operands;
	const char *words[ARGUMENTS_MAX];
	bool takes_operands;
	char why[OPTIONS_WHY_SIZE];
	char path[64];
};

static const char *const variables[] = {"QUIPU_LISTEN", "QUIPU_DATA", "QUIPU_STORE",
	"QUIPU_COUNTS_STORE", "QUIPU_LANES", "QUIPU_BATCH_MAX", "QUIPU_DEADLINE", "QUIPU_INSECURE",
	"QUIPU_LOG_LEVEL", "QUIPU_CONFIG"};

static int set_up(void **state)
{
	static struct fixture fixture;
	int fd;

	memset(&fixture, 0, sizeof(fixture));
	for (size_t i = 0; i < COUNT_OF(variables); i++)
		unsetenv(variables[i]);
	snprintf(fixture.path, sizeof(fixture.path), "/tmp/quipu-options-XXXXXX");
	fd = mkstemp(fixture.path);
	if (fd < 0)
		return -1;
	close(fd);
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	return unlink(fixture->path);
}

static void write_file(const struct fixture *fixture, const char *text)
{
	FILE *file = fopen(fixture->path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* Reads the options from `arguments`, which end with NULL. */
static bool read_options(struct fixture *fixture, const char *const *arguments)
{
	char *copies[ARGUMENTS_MAX];
	int count = 0;

	while (arguments[count]) {
		assert_true(count < ARGUMENTS_MAX);
		copies[count] = (char *)(uintptr_t)arguments[count];
		count++;
	}
	memset(fixture->why, 0, sizeof(fixture->why));
	return options_read(&fixture->settings, fixture->takes_operands ? &fixture->operands : NULL,
		count, copies, fixture->why);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void assert_read(struct fixture *fixture, const char *const *arguments)
{
	if (!read_options(fixture, arguments))
		fail_msg("%s", fixture->why);
}

static void assert_refused(
	struct fixture *fixture, const char *const *arguments, const char *reason)
{
	if (read_options(fixture, arguments))
		fail_msg("accepted: %s", arguments[0]);
	if (!strstr(fixture->why, reason))
		fail_msg("\"%s\" is not in \"%s\"", reason, fixture->why);
}

/* ---- precedence -------------------------------------------------------------------------- */

static void without_anything_the_defaults_hold(void **state)
{
	struct fixture *fixture = *state;

	assert_read(fixture, ARGUMENTS());
	assert_string_equal(fixture->settings.listen, "127.0.0.1:8080");
	assert_string_equal(fixture->settings.data, "quipu-data");
	assert_string_equal(fixture->settings.store, "sqlite:");
	assert_string_equal(fixture->settings.counts_store, "");
	assert_int_equal(fixture->settings.batch_max, 1024);
	assert_int_equal(fixture->settings.deadline_us, 5000000);
	assert_int_equal(fixture->settings.idempotency_ttl_us, 86400000000);
	assert_false(fixture->settings.insecure);
	assert_false(fixture->settings.print_config);
	assert_false(fixture->settings.check_config);
}

static void a_flag_beats_the_environment_beats_the_file_beats_the_default(void **state)
{
	struct fixture *fixture = *state;

	write_file(fixture, "lanes = 3\nbatch-max = 30\nlane-depth = 300\n");
	setenv("QUIPU_LANES", "4", 1);
	setenv("QUIPU_BATCH_MAX", "40", 1);
	assert_read(fixture, ARGUMENTS("--config", fixture->path, "--lanes", "5"));
	assert_int_equal(fixture->settings.lanes, 5);
	assert_int_equal(fixture->settings.batch_max, 40);
	assert_int_equal(fixture->settings.lane_depth, 300);
	assert_int_equal(fixture->settings.loops, 0);
}

static void the_place_of_the_file_among_the_flags_does_not_matter(void **state)
{
	struct fixture *fixture = *state;

	write_file(fixture, "lanes = 3\n");
	assert_read(fixture, ARGUMENTS("--lanes", "5", "--config", fixture->path));
	assert_int_equal(fixture->settings.lanes, 5);
}

static void one_reading_leaves_nothing_to_the_next(void **state)
{
	struct fixture *fixture = *state;

	write_file(fixture, "lanes = 3\n");
	assert_read(fixture, ARGUMENTS("--config", fixture->path, "--insecure", "--print-config"));
	assert_int_equal(fixture->settings.lanes, 3);
	assert_read(fixture, ARGUMENTS());
	assert_int_equal(fixture->settings.lanes, 0);
	assert_false(fixture->settings.insecure);
	assert_false(fixture->settings.print_config);
}

static void the_environment_can_name_the_file(void **state)
{
	struct fixture *fixture = *state;

	write_file(fixture, "lanes = 3\n");
	setenv("QUIPU_CONFIG", fixture->path, 1);
	assert_read(fixture, ARGUMENTS());
	assert_int_equal(fixture->settings.lanes, 3);
	setenv("QUIPU_CONFIG", "/nonexistent/quipu.ini", 1);
	assert_read(fixture, ARGUMENTS("--config", fixture->path));
	assert_int_equal(fixture->settings.lanes, 3);
}

static void an_empty_variable_counts_as_absent(void **state)
{
	struct fixture *fixture = *state;

	setenv("QUIPU_LANES", "", 1);
	setenv("QUIPU_LISTEN", "", 1);
	assert_read(fixture, ARGUMENTS());
	assert_int_equal(fixture->settings.lanes, 0);
	assert_string_equal(fixture->settings.listen, "127.0.0.1:8080");
}

/* ---- how values are written -------------------------------------------------------------- */

static void a_value_stands_behind_a_flag_or_an_equals_sign(void **state)
{
	struct fixture *fixture = *state;

	assert_read(fixture,
		ARGUMENTS("--store=postgres://h/db?a=b", "--data", "/var/lib/quipu", "--listen="));
	assert_string_equal(fixture->settings.store, "postgres://h/db?a=b");
	assert_string_equal(fixture->settings.data, "/var/lib/quipu");
	assert_string_equal(fixture->settings.listen, "");
}

static void the_last_of_two_equal_flags_wins(void **state)
{
	struct fixture *fixture = *state;

	assert_read(fixture, ARGUMENTS("--lanes=1", "--lanes=2"));
	assert_int_equal(fixture->settings.lanes, 2);
}

static void a_switch_is_on_when_named_and_can_be_turned_off(void **state)
{
	static const struct {
		const char *argument;
		bool expected;
	} cases[] = {
		{"--insecure", true},
		{"--insecure=yes", true},
		{"--insecure=true", true},
		{"--insecure=1", true},
		{"--insecure=no", false},
		{"--insecure=false", false},
		{"--insecure=0", false},
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		assert_read(fixture, ARGUMENTS(cases[i].argument, "--lanes", "2"));
		assert_int_equal(fixture->settings.insecure, cases[i].expected);
		assert_int_equal(fixture->settings.lanes, 2);
	}
}

static void what_to_do_is_asked_by_flags_without_a_value(void **state)
{
	struct fixture *fixture = *state;

	assert_read(fixture, ARGUMENTS("--print-config", "--check-config", "--lanes", "2"));
	assert_true(fixture->settings.print_config);
	assert_true(fixture->settings.check_config);
	assert_int_equal(fixture->settings.lanes, 2);
}

static void a_file_has_comments_sections_and_white_space(void **state)
{
	struct fixture *fixture = *state;

	write_file(fixture, "; a comment\n# another\n\n[quipu]\n  \nlanes=7 ; behind a value\n"
			    "listen : 127.0.0.1:9000\ndeadline\t=  20ms  \n");
	assert_read(fixture, ARGUMENTS("--config", fixture->path));
	assert_int_equal(fixture->settings.lanes, 7);
	assert_string_equal(fixture->settings.listen, "127.0.0.1:9000");
	assert_int_equal(fixture->settings.deadline_us, 20000);
}

static void both_ends_of_a_range_are_within_it(void **state)
{
	struct fixture *fixture = *state;

	assert_read(fixture, ARGUMENTS("--batch-max=1", "--lanes=64", "--deadline=1ms",
				     "--idempotency-ttl=366d", "--drain-timeout=0"));
	assert_int_equal(fixture->settings.batch_max, 1);
	assert_int_equal(fixture->settings.lanes, 64);
	assert_int_equal(fixture->settings.deadline_us, 1000);
	assert_int_equal(fixture->settings.drain_timeout_us, 0);
}

/* ---- what is wrong ----------------------------------------------------------------------- */

static void a_wrong_value_is_refused_with_its_name(void **state)
{
	static const char *const cases[][2] = {
		{"--lanes=many", "--lanes must be a number from 0 to 64, not \"many\""},
		{"--lanes=65", "--lanes must be a number from 0 to 64"},
		{"--lanes=-1", "--lanes must be a number"},
		{"--lanes=", "--lanes must be a number"},
		{"--lanes=1.5", "--lanes must be a number"},
		{"--batch-max=0", "--batch-max must be a number from 1 to 65536"},
		{"--batch-max=99999999999999999999", "--batch-max must be a number"},
		{"--deadline=5", "--deadline must be a time"},
		{"--deadline=0", "--deadline must be a time"},
		{"--deadline=999us", "--deadline must be a time"},
		{"--deadline=367d", "--deadline must be a time"},
		{"--deadline=soon",
			"--deadline must be a time such as 500ms, 5s or 24h, not \"soon\""},
		{"--insecure=maybe", "--insecure must be yes or no, not \"maybe\""},
		{"--log-level=loud", "--log-level must be debug, info, warn or error"},
		{"--log-format=xml", "--log-format must be text, json or auto"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_refused(*state, ARGUMENTS(cases[i][0]), cases[i][1]);
}

static void a_wrong_flag_is_refused(void **state)
{
	struct fixture *fixture = *state;

	assert_refused(fixture, ARGUMENTS("--speed=9"), "there is no option --speed");
	assert_refused(fixture, ARGUMENTS("--Lanes=1"), "there is no option --Lanes");
	assert_refused(fixture, ARGUMENTS("--"), "there is no option --");
	assert_refused(fixture, ARGUMENTS("lanes=1"), "\"lanes=1\" is not understood");
	assert_refused(fixture, ARGUMENTS("-l"), "\"-l\" is not understood");
	assert_refused(fixture, ARGUMENTS("--insecure", "yes"), "\"yes\" is not understood");
	assert_refused(fixture, ARGUMENTS("--lanes"), "--lanes needs a value");
}

static void a_wrong_variable_is_refused(void **state)
{
	struct fixture *fixture = *state;

	setenv("QUIPU_LANES", "many", 1);
	assert_refused(fixture, ARGUMENTS(), "--lanes must be a number");
	assert_read(fixture, ARGUMENTS("--lanes=1"));
}

static void a_wrong_file_is_refused_with_the_place(void **state)
{
	struct fixture *fixture = *state;

	assert_refused(fixture, ARGUMENTS("--config=/nonexistent/quipu.ini"),
		"cannot read the configuration file /nonexistent/quipu.ini");
	write_file(fixture, "lanes = 3\nspeed = 9\n");
	assert_refused(fixture, ARGUMENTS("--config", fixture->path), "no option \"speed\"");
	write_file(fixture, "lanes = 3\n\nnonsense\n");
	assert_refused(fixture, ARGUMENTS("--config", fixture->path), "line 3 is not");
	write_file(fixture, "lanes = many\n");
	assert_refused(fixture, ARGUMENTS("--config", fixture->path), "--lanes must be a number");
	write_file(fixture, "lanes = 3\nlanes = 4\n");
	assert_refused(fixture, ARGUMENTS("--config", fixture->path), "\"lanes\" is given twice");
	write_file(fixture, "= 3\n");
	assert_refused(fixture, ARGUMENTS("--config", fixture->path), "line 1 is not");
}

static void a_wrong_name_is_refused_with_the_one_that_was_meant(void **state)
{
	struct fixture *fixture = *state;

	assert_refused(fixture, ARGUMENTS("--bach-max=1"), "did you mean --batch-max?");
	assert_refused(fixture, ARGUMENTS("--colour=1"), "there is no option --colour; see");
	write_file(fixture, "max_conections = 3\n");
	assert_refused(fixture, ARGUMENTS("--config", fixture->path),
		"no option \"max_conections\"; did you mean max-connections?");
}

/* Writes a line of `len` bytes that sets --data. */
static void write_long_line(struct fixture *fixture, size_t len)
{
	static char text[8192];

	assert_true(len + 2 < sizeof(text));
	memset(text, 'd', len);
	memcpy(text, "data = ", 7);
	memcpy(text + len, "\n", 2);
	write_file(fixture, text);
}

static void a_line_of_the_file_may_have_4096_bytes(void **state)
{
	struct fixture *fixture = *state;

	write_long_line(fixture, 4096);
	assert_read(fixture, ARGUMENTS("--config", fixture->path));
	assert_int_equal(strlen(fixture->settings.data), 4096 - 7);
	write_long_line(fixture, 4097);
	assert_refused(fixture, ARGUMENTS("--config", fixture->path), "longer than 4096 bytes");
}

static void a_reason_of_any_length_is_cut_and_ended(void **state)
{
	struct fixture *fixture = *state;
	static char argument[2000];

	memset(argument, 'x', sizeof(argument) - 1);
	memcpy(argument, "--lanes=", 8);
	assert_refused(fixture, ARGUMENTS(argument), "--lanes must be a number");
	memcpy(argument, "--xxxxxx", 8);
	assert_refused(fixture, ARGUMENTS(argument), "there is no option --xxx");
	assert_int_equal(fixture->why[OPTIONS_WHY_SIZE - 1], '\0');
}

/* ---- operands ---------------------------------------------------------------------------- */

/* Makes the command take words and the flags --why and --limit. */
static void take_operands(struct fixture *fixture)
{
	static const char *const flags[] = {"why", "limit", NULL};

	fixture->takes_operands = true;
	fixture->operands = (struct operands){.flags = flags, .words = fixture->words};
}

static void words_and_flags_of_a_command_stand_among_the_options(void **state)
{
	struct fixture *fixture = *state;

	take_operands(fixture);
	assert_read(fixture, ARGUMENTS("replay", "--lanes", "3", "outbox/1", "--why=it = was",
				     "--insecure", "outbox/2"));
	assert_int_equal(fixture->operands.word_count, 3);
	assert_string_equal(fixture->words[0], "replay");
	assert_string_equal(fixture->words[1], "outbox/1");
	assert_string_equal(fixture->words[2], "outbox/2");
	assert_string_equal(operands_flag(&fixture->operands, "why"), "it = was");
	assert_null(operands_flag(&fixture->operands, "limit"));
	assert_null(operands_flag(&fixture->operands, "lanes"));
	assert_int_equal(fixture->settings.lanes, 3);
	assert_true(fixture->settings.insecure);
}

static void a_flag_of_a_command_has_a_value_and_no_variable(void **state)
{
	struct fixture *fixture = *state;

	setenv("QUIPU_WHY", "because", 1);
	take_operands(fixture);
	assert_read(fixture, ARGUMENTS("--limit", "5"));
	assert_string_equal(operands_flag(&fixture->operands, "limit"), "5");
	assert_null(operands_flag(&fixture->operands, "why"));
	unsetenv("QUIPU_WHY");
	assert_refused(fixture, ARGUMENTS("--why"), "--why needs a value");
	assert_refused(fixture, ARGUMENTS("-l"), "\"-l\" is not understood");
	assert_refused(fixture, ARGUMENTS("--whyever=a"), "there is no option --whyever");
	write_file(fixture, "why = because\n");
	assert_refused(fixture, ARGUMENTS("--config", fixture->path), "no option \"why\"");
}

static void the_flags_of_one_command_are_none_of_another(void **state)
{
	assert_refused(*state, ARGUMENTS("--why=a"), "there is no option --why");
	assert_refused(*state, ARGUMENTS("outbox/1"), "\"outbox/1\" is not understood");
}

/* ---- showing ----------------------------------------------------------------------------- */

/* Returns what `show` prints. The caller frees it. */
static char *shown(void (*show)(FILE *out))
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	show(out);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void the_result_is_shown_with_its_sources(void **state)
{
	struct fixture *fixture = *state;
	char *text;

	write_file(fixture, "lane-depth = 300\n");
	setenv("QUIPU_BATCH_MAX", "40", 1);
	assert_read(fixture, ARGUMENTS("--config", fixture->path, "--lanes", "5"));
	text = shown(options_print);
	assert_non_null(strstr(text, "lanes = 5  ; flag\n"));
	assert_non_null(strstr(text, "batch-max = 40  ; environment\n"));
	assert_non_null(strstr(text, "lane-depth = 300  ; file\n"));
	assert_non_null(strstr(text, "listen = 127.0.0.1:8080  ; default\n"));
	free(text);
}

static void what_is_shown_can_be_read_back_as_a_file(void **state)
{
	struct fixture *fixture = *state;
	char *text;

	assert_read(fixture, ARGUMENTS("--lanes=5", "--deadline=250ms", "--insecure"));
	text = shown(options_print);
	write_file(fixture, text);
	free(text);
	assert_read(fixture, ARGUMENTS("--config", fixture->path));
	assert_int_equal(fixture->settings.lanes, 5);
	assert_int_equal(fixture->settings.deadline_us, 250000);
	assert_true(fixture->settings.insecure);
	assert_string_equal(fixture->settings.counts_store, "");
}

/* Ignores the name of --webhook-secret-file. */
static bool shows_secret(const char *text)
{
	for (const char *at = strstr(text, "secret"); at; at = strstr(at + 1, "secret")) {
		if (strncmp(at, "secret-file", strlen("secret-file")) != 0)
			return true;
	}
	return false;
}

static void passwords_are_never_shown(void **state)
{
	static const struct {
		const char *url;
		const char *expected;
	} cases[] = {
		{"postgres://user:secret@host:5432/db", "postgres://user:***@host:5432/db"},
		{"postgres://user@host/db", "postgres://user@host/db"},
		{"postgres://host/db?password=secret", "postgres://host/db?password=***"},
		{"postgres://host/db?password=secret&user=u",
			"postgres://host/db?password=***&user=u"},
		{"postgres://u:secret@host/db?password=secret&a=b",
			"postgres://u:***@host/db?password=***&a=b"},
		{"postgres://host/db?sslpassword=secret", "postgres://host/db?sslpassword=***"},
		{"postgres://:secret@host/db", "postgres://:***@host/db"},
		{"postgres://u:sec@ret@host/db", "postgres://u:***@host/db"},
		{"postgres://u:sec/ret@host/db", "postgres://u:***@host/db"},
		{"postgres://u:12/secret@host/db", "postgres://u:***@host/db"},
		{"postgres://u:12?secret@host/db", "postgres://u:***@host/db"},
		{"postgres://u:sec,ret/a@host/db", "postgres://u:***@host/db"},
		{"postgres://u@a:5432,b:5432/db", "postgres://u@a:5432,b:5432/db"},
		{"postgres://u@[::1]:5432/db", "postgres://u@[::1]:5432/db"},
		{"nats://secret@host:4222", "nats://***@host:4222"},
		{"postgres://u:secret@[::1]:5432/db", "postgres://u:***@[::1]:5432/db"},
		{"postgres://host/db?p%61ssword=secret&a=b",
			"postgres://host/db?p%61ssword=***&a=b"},
		{"postgres://host/db?PASSWORD=secret", "postgres://host/db?PASSWORD=***"},
		{"kafka://h:9092?sasl.username=u&sasl.password=secret&ssl.key.password=secret",
			"kafka://h:9092?sasl.username=u&sasl.password=***&ssl.key.password=***"},
		{"nats://:secret@host:4222", "nats://:***@host:4222"},
		{"webhook:https://user:secret@host/hook?token=secret&to=me",
			"webhook:https://user:***@host/hook?token=***&to=me"},
		{"webhook:http://host:8080/@me", "webhook:http://host:8080/@me"},
		{"kafka://a:9092,b:9092", "kafka://a:9092,b:9092"},
		{"postgres://host/db?passfile=/run/pass", "postgres://host/db?passfile=/run/pass"},
		{"postgres://host:5432/db", "postgres://host:5432/db"},
		{"sqlite:", "sqlite:"},
		{"sqlite:/var/lib/x.db", "sqlite:/var/lib/x.db"},
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char line[128], *text;

		setenv("QUIPU_STORE", cases[i].url, 1);
		assert_read(fixture, ARGUMENTS());
		text = shown(options_print);
		snprintf(line, sizeof(line), "\nstore = %s  ; environment\n", cases[i].expected);
		if (!strstr(text, line) || shows_secret(text))
			fail_msg("%s", text);
		free(text);
	}
}

static void a_secret_is_not_taken_from_a_flag(void **state)
{
	static const struct {
		const char *flag;
		const char *url;
		const char *instead;
	} cases[] = {
		{"--store", "postgres://user:secret@host/db", "QUIPU_STORE"},
		{"--store", "postgres://user:secret@host/db", "PGPASSFILE"},
		{"--counts-store", "postgres://host/db?sslpassword=secret", "QUIPU_COUNTS_STORE"},
		{"--gateway-bus", "kafka://h:9092?sasl.password=secret", "QUIPU_GATEWAY_BUS"},
		{"--cache", "redis://:secret@host", "QUIPU_CACHE"},
		{"--notify-channel", "webhook:https://host/?token=secret", "QUIPU_NOTIFY_CHANNEL"},
		{"--server", "http://user:secret@host", "--config"},
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		assert_refused(fixture, ARGUMENTS(cases[i].flag, cases[i].url), cases[i].instead);
		assert_null(strstr(fixture->why, "secret@"));
		assert_null(strstr(fixture->why, "=secret"));
	}
	assert_read(fixture, ARGUMENTS("--store", "postgres://user@host/db"));
	assert_read(fixture, ARGUMENTS("--store", "postgres://user:@host/db?password="));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_anything_the_defaults_hold),
		TEST(a_flag_beats_the_environment_beats_the_file_beats_the_default),
		TEST(the_place_of_the_file_among_the_flags_does_not_matter),
		TEST(one_reading_leaves_nothing_to_the_next),
		TEST(the_environment_can_name_the_file),
		TEST(an_empty_variable_counts_as_absent),
		TEST(a_value_stands_behind_a_flag_or_an_equals_sign),
		TEST(the_last_of_two_equal_flags_wins),
		TEST(a_switch_is_on_when_named_and_can_be_turned_off),
		TEST(what_to_do_is_asked_by_flags_without_a_value),
		TEST(a_file_has_comments_sections_and_white_space),
		TEST(both_ends_of_a_range_are_within_it),
		TEST(a_wrong_value_is_refused_with_its_name),
		TEST(a_wrong_flag_is_refused),
		TEST(a_wrong_variable_is_refused),
		TEST(a_wrong_file_is_refused_with_the_place),
		TEST(a_wrong_name_is_refused_with_the_one_that_was_meant),
		TEST(a_line_of_the_file_may_have_4096_bytes),
		TEST(a_reason_of_any_length_is_cut_and_ended),
		TEST(words_and_flags_of_a_command_stand_among_the_options),
		TEST(a_flag_of_a_command_has_a_value_and_no_variable),
		TEST(the_flags_of_one_command_are_none_of_another),
		TEST(the_result_is_shown_with_its_sources),
		TEST(what_is_shown_can_be_read_back_as_a_file),
		TEST(passwords_are_never_shown),
		TEST(a_secret_is_not_taken_from_a_flag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

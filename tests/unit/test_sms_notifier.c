/* Messages on standard output, also if that is a pipe that nobody reads. */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapters/notifier/sms/sms_notifier.h"
#include "base/clock.h"

#define NOTICES 200
#define TEXT_SIZE 1000       /* all notices together are more than a pipe holds */
#define LONG_TEXT_SIZE 16384 /* more than a pipe takes at once */
#define PIPE_SIZE 65536

/* Standard output is a pipe until the test ends. */
struct output {
	struct notifier *notifier;
	int terminal;
	int reader;
	struct notice_result results[256];
};

static void open_output(struct output *output)
{
	int ends[2];

	fflush(stdout);
	output->notifier = sms_notifier_new();
	output->terminal = dup(STDOUT_FILENO);
	assert_true(output->terminal >= 0);
	assert_int_equal(pipe(ends), 0);
	assert_true(fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE) >= 0);
	assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	dup2(ends[1], STDOUT_FILENO);
	close(ends[1]);
	output->reader = ends[0];
}

static void close_output(struct output *output)
{
	dup2(output->terminal, STDOUT_FILENO);
	close(output->terminal);
	close(output->reader);
	output->notifier->ops->free(output->notifier);
}

/* Sends a message of `size` letters for the user with this number. */
static void send_message(struct output *output, unsigned user, size_t size)
{
	char *body = malloc(size + 64);
	int head = sprintf(body, "{\"userId\":\"%u\",\"message\":\"", user);
	struct notice notice = {.tag = user};

	memset(body + head, 'x', size);
	strcpy(body + head + size, "\"}");
	notice.body = slice_of(body);
	output->notifier->ops->send(output->notifier, &notice);
	free(body);
}

static size_t wait_results(struct output *output)
{
	return output->notifier->ops->wait(
		output->notifier, output->results, 256, clock_steady_ns(&clock_system) + NS_PER_S);
}

/* Appends everything that is in the pipe to `text`. */
static void read_pipe(const struct output *output, char *text)
{
	size_t len = strlen(text);
	ssize_t got;

	while ((got = read(output->reader, text + len, PIPE_SIZE)) > 0)
		len += (size_t)got;
	text[len] = '\0';
}

static unsigned count_lines(const char *text, unsigned user, size_t size)
{
	char *line = malloc(size + 64);
	unsigned count = 0;
	int head = sprintf(line, "SMS SENT userId=%u message=", user);

	memset(line + head, 'x', size);
	strcpy(line + head + size, "\n");
	for (const char *at = text; (at = strstr(at, line)); at++)
		count++;
	free(line);
	return count;
}

static void of_messages_that_nobody_reads_every_line_is_whole_and_none_is_repeated(void **state)
{
	struct output output;
	char *text = calloc(1, 8 * PIPE_SIZE);
	size_t count, failed = 0;

	(void)state;
	open_output(&output);
	for (unsigned user = 0; user < NOTICES; user++)
		send_message(&output, user, TEXT_SIZE);
	count = wait_results(&output);
	read_pipe(&output, text);
	for (size_t i = 0; i < count; i++) {
		const struct notice_result *result = &output.results[i];

		if (result->fate == NOTICE_SENT)
			continue;
		assert_int_equal(result->fate, NOTICE_FAILED);
		assert_true(result->is_unreachable);
		assert_string_equal(
			result->error, "cannot write to standard output: nobody reads it");
		failed++;
		send_message(&output, (unsigned)result->tag, TEXT_SIZE);
		assert_int_equal(count_lines(text, (unsigned)result->tag, TEXT_SIZE), 0);
	}
	assert_int_equal(count, NOTICES);
	assert_in_range(failed, 1, NOTICES - 1);
	while (failed > 0) {
		size_t again = wait_results(&output);

		read_pipe(&output, text);
		for (size_t i = 0; i < again; i++) {
			if (output.results[i].fate == NOTICE_SENT)
				failed--;
			else
				send_message(&output, (unsigned)output.results[i].tag, TEXT_SIZE);
		}
	}
	close_output(&output);
	for (unsigned user = 0; user < NOTICES; user++)
		assert_int_equal(count_lines(text, user, TEXT_SIZE), 1);
	free(text);
}

static void a_line_that_was_torn_is_ended_and_repeated_whole(void **state)
{
	struct output output;
	char *text = calloc(1, 4 * PIPE_SIZE);
	unsigned user = 0;

	(void)state;
	open_output(&output);
	do {
		send_message(&output, ++user, LONG_TEXT_SIZE);
		assert_int_equal(wait_results(&output), 1);
	} while (output.results[0].fate == NOTICE_SENT);
	read_pipe(&output, text);
	assert_int_not_equal(text[strlen(text) - 1], '\n');
	send_message(&output, user, LONG_TEXT_SIZE);
	assert_int_equal(wait_results(&output), 1);
	assert_int_equal(output.results[0].fate, NOTICE_SENT);
	read_pipe(&output, text);
	close_output(&output);
	for (unsigned i = 1; i <= user; i++)
		assert_int_equal(count_lines(text, i, LONG_TEXT_SIZE), 1);
	assert_non_null(strstr(text, "x\nSMS SENT"));
	free(text);
}

static void without_a_reader_a_message_fails_at_once(void **state)
{
	struct output output;

	(void)state;
	open_output(&output);
	close(output.reader);
	send_message(&output, 1, TEXT_SIZE);
	assert_int_equal(wait_results(&output), 1);
	output.reader = dup(output.terminal);
	close_output(&output);
	assert_int_equal(output.results[0].fate, NOTICE_FAILED);
	assert_string_equal(
		output.results[0].error, "cannot write to standard output: Broken pipe");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			of_messages_that_nobody_reads_every_line_is_whole_and_none_is_repeated),
		cmocka_unit_test(a_line_that_was_torn_is_ended_and_repeated_whole),
		cmocka_unit_test(without_a_reader_a_message_fails_at_once),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

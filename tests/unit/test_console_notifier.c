/* What a notice looks like in the log. */
#include "check.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapters/notifier/console/console_notifier.h"
#include "base/log.h"

/* Writes the log of sending one notice to `text`. */
static void log_of_notice(const struct notice *notice, char *text, size_t size)
{
	struct notifier *notifier = console_notifier_new();
	int terminal = dup(STDERR_FILENO), file = memfd_create("log", MFD_CLOEXEC);
	ssize_t len;

	assert_true(terminal >= 0 && file >= 0);
	dup2(file, STDERR_FILENO);
	notifier->ops->send(notifier, notice);
	dup2(terminal, STDERR_FILENO);
	close(terminal);
	len = pread(file, text, size - 1, 0);
	assert_true(len >= 0);
	text[len] = '\0';
	close(file);
	notifier->ops->free(notifier);
}

static const struct notice notice = {
	.id = SLICE("n-1"),
	.trace = SLICE("00-a-b-01"),
	.body = SLICE("{\"text\":\"a\nb\x1b[31m\xc3\xa4\"}"),
};

static void a_notice_is_one_line_with_control_characters_escaped(void **state)
{
	char text[1024];

	(void)state;
	log_configure(LOG_DEBUG, LOG_TEXT);
	log_of_notice(&notice, text, sizeof(text));
	assert_contains(slice_of(text),
		" info  notify: notification sent notification_id=n-1 traceparent=00-a-b-01 "
		"body={\"text\":\"a\\x0ab\\x1b[31m\xc3\xa4\"}\n");
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void a_notice_is_one_object_in_a_log_of_json(void **state)
{
	char text[1024];

	(void)state;
	log_configure(LOG_DEBUG, LOG_JSON);
	log_of_notice(&notice, text, sizeof(text));
	assert_contains(slice_of(text), "\"part\":\"notify\"");
	assert_contains(slice_of(text), "\"notification_id\":\"n-1\"");
	assert_contains(
		slice_of(text), "\"body\":\"{\\\"text\\\":\\\"a\\\\x0ab\\\\x1b[31m\xc3\xa4\\\"}\"");
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void the_body_is_shown_only_for_debugging(void **state)
{
	char text[1024];

	(void)state;
	log_configure(LOG_INFO, LOG_TEXT);
	log_of_notice(&notice, text, sizeof(text));
	assert_contains(slice_of(text), "notification_id=n-1 traceparent=00-a-b-01\n");
}

static void a_log_that_leaves_info_out_has_no_notices(void **state)
{
	char text[1024];

	(void)state;
	log_configure(LOG_WARN, LOG_TEXT);
	log_of_notice(&notice, text, sizeof(text));
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_notice_is_one_line_with_control_characters_escaped),
		cmocka_unit_test(a_notice_is_one_object_in_a_log_of_json),
		cmocka_unit_test(the_body_is_shown_only_for_debugging),
		cmocka_unit_test(a_log_that_leaves_info_out_has_no_notices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

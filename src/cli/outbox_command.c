/* One request is enough: the server marks the events as unpublished, and its relay publishes them
 * again. */
#include "cli/outbox_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/client.h"
#include "cli/report.h"

#define USAGE "usage: quipu outbox resend [dialog-outbox] --since TIME"

const char *const outbox_flags[] = {"since", OWN_SWITCH "json", NULL};

/* Parses a time, or a duration such as "24h", which stands for the time 24 hours ago. Returns false
 * if `text` is neither. */
static bool read_since(const char *text, int64_t *time_us)
{
	int64_t ago_us;

	if (text_to_time_us(slice_of(text), time_us))
		return true;
	if (!text_to_duration_us(slice_of(text), &ago_us) || ago_us <= 0)
		return false;
	return !__builtin_sub_overflow(clock_wall_us(&clock_system), ago_us, time_us);
}

static int report_resent(struct client *client, const struct client_answer *answer, bool json)
{
	const json_t *resent = json_object_get(answer->json, "resent");
	struct slice code = client_text(answer->json, "code");
	char why[CLIENT_WHY_SIZE];

	if (answer->http_status == 200 && json_is_integer(resent)) {
		long long count = json_integer_value(resent);

		if (json)
			printf("{\"resent\":%lld}\n", count);
		else
			printf("%lld event%s will be sent again\n", count, count == 1 ? "" : "s");
		return EXIT_SUCCESS;
	}
	if (slice_is(code, status_code(STATUS_ROUTE_NOT_FOUND)) ||
		slice_is(code, status_code(STATUS_ROLE_NOT_HERE)))
		snprintf(why, sizeof(why),
			"the server at %s runs no role with the requested outbox",
			client_server(client));
	else
		client_read_problem(client, answer, why);
	return report_failure(EXIT_FAILURE, "%s", why);
}

static int resend(struct client *client, const char *target, int64_t since_us, bool json)
{
	struct arena arena;
	struct buffer body;
	struct client_answer answer;
	char why[CLIENT_WHY_SIZE];
	int code = EXIT_FAILURE;

	arena_init(&arena, 256);
	body = buffer_make(&arena, 64);
	buffer_text(&body, "{\"since\":\"");
	buffer_time(&body, since_us);
	buffer_text(&body, "\"}");
	if (client_post(client, target, buffer_slice(&body), &answer, why)) {
		code = report_resent(client, &answer, json);
		client_answer_release(&answer);
	} else {
		report_failure(EXIT_FAILURE, "%s", why);
	}
	arena_release(&arena);
	return code;
}

/* Returns the path of the outbox's route, or NULL if there is no such outbox. */
static const char *resend_target(const char *outbox)
{
	if (strcmp(outbox, "outbox") == 0)
		return "/operator/outbox/resend";
	return strcmp(outbox, "dialog-outbox") == 0 ? "/operator/dialog-outbox/resend" : NULL;
}

int outbox_run(const struct settings *settings, const struct operands *operands)
{
	const char *since = operands_flag(operands, "since");
	const char *outbox = operands->word_count == 2 ? operands->words[1] : "outbox";
	struct client *client;
	char why[CLIENT_WHY_SIZE];
	int64_t since_us;
	int code;

	if (operands->word_count < 1 || operands->word_count > 2 || !since ||
		strcmp(operands->words[0], "resend") != 0)
		return report_failure(EXIT_USAGE, USAGE);
	client = client_open(settings, why);
	if (!client)
		return report_failure(EXIT_USAGE, "%s", why);
	if (!resend_target(outbox))
		code = report_failure(EXIT_USAGE,
			"name the outbox as \"outbox\" (entitlements) or \"dialog-outbox\" "
			"(dialogs), not \"%s\"",
			outbox);
	else if (!read_since(since, &since_us))
		code = report_failure(EXIT_USAGE,
			"--since must be a time such as 2026-01-08T07:10:00Z, or a duration such "
			"as 24h, not \"%s\"",
			since);
	else
		code = resend(client, resend_target(outbox), since_us,
			operands_flag(operands, "json") != NULL);
	client_close(client);
	return code;
}

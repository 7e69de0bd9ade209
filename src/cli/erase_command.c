/*
 * For each request, the server does one bounded step and reports whether more rows may be left to
 * erase. For each place, such as "messages received", the command adds up how many rows the steps
 * have changed. When a service is done, the command prints the sums of that service.
 */
#include "cli/erase_command.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/text.h"
#include "cli/client.h"
#include "cli/report.h"

#define PLACES_MAX 16

const char *const erase_flags[] = {OWN_SWITCH "dry-run", OWN_SWITCH "json", NULL};

/* All services that keep data about persons. The command reports which of them the server does not
 * run. */
static const char *const known_services[] = {
	"dialogs", "counters", "entitlements", "notifications", "gateway", NULL};

struct erase_call {
	struct client *client;
	struct arena arena;
	const char *user_id;
	bool dry_run;
	bool json; /* print one JSON object per service */
};

/* For each place where one service keeps rows about the person: the number of rows that were (or,
 * with --dry-run, would be) changed. */
struct erase_sums {
	struct slice names[PLACES_MAX]; /* allocated from the call's arena */
	long long rows[PLACES_MAX];
	size_t count;
	bool has_more;
};

static void add_step(struct erase_call *call, struct erase_sums *sums, const json_t *step)
{
	const json_t *places = json_object_get(step, "places");

	sums->count = json_array_size(places) < PLACES_MAX ? json_array_size(places) : PLACES_MAX;
	for (size_t i = 0; i < sums->count; i++) {
		const json_t *place = json_array_get(places, i);

		if (!sums->names[i].data)
			sums->names[i] = arena_copy(&call->arena, client_text(place, "place"));
		if (text_has_control(sums->names[i]))
			sums->names[i] = slice_of("rows");
		sums->rows[i] += json_integer_value(json_object_get(place, "rows"));
	}
	sums->has_more = json_is_true(json_object_get(step, "more"));
}

/* Prints a line such as {"service":"dialogs","places":{"messages received":12}}. */
static void print_sums_json(
	struct erase_call *call, const char *service, const struct erase_sums *sums)
{
	struct buffer line = buffer_make(&call->arena, 256);

	buffer_format(&line, "{\"service\":\"%s\",\"places\":{", service);
	for (size_t i = 0; i < sums->count; i++) {
		buffer_text(&line, i > 0 ? "," : "");
		buffer_json_string(&line, sums->names[i]);
		buffer_format(&line, ":%lld", sums->rows[i]);
	}
	buffer_text(&line, "}}");
	buffer_char(&line, '\0');
	puts(line.data);
}

/* Prints a line such as "dialogs: 12 messages received, 1 conversation". */
static void print_sums(struct erase_call *call, const char *service, const struct erase_sums *sums)
{
	struct buffer line = buffer_make(&call->arena, 256);
	const char *separator = ": ";

	buffer_text(&line, service);
	for (size_t i = 0; i < sums->count; i++) {
		if (sums->rows[i] == 0)
			continue;
		buffer_text(&line, separator);
		buffer_counted(&line, sums->rows[i], sums->names[i]);
		separator = ", ";
	}
	buffer_text(&line, separator[0] == ':' ? ": nothing" : "");
	buffer_char(&line, '\0');
	puts(line.data);
}

static bool run_step(
	struct erase_call *call, const char *service, struct erase_sums *sums, char *why)
{
	struct buffer body = buffer_make(&call->arena, 256);
	struct client_answer answer;
	char target[64];
	bool ok;

	snprintf(target, sizeof(target), "/operator/erase/%s", service);
	buffer_text(&body, "{\"userId\":");
	buffer_json_string(&body, slice_of(call->user_id));
	buffer_format(&body, ",\"dryRun\":%s}", call->dry_run ? "true" : "false");
	if (!client_post(call->client, target, buffer_slice(&body), &answer, why))
		return false;
	ok = answer.http_status == 200;
	if (ok)
		add_step(call, sums, answer.json);
	else
		client_read_problem(call->client, &answer, why);
	client_answer_release(&answer);
	return ok;
}

static bool erase_service(struct erase_call *call, const char *service, char *why)
{
	struct erase_sums sums = {.has_more = true};

	while (sums.has_more) {
		if (!run_step(call, service, &sums, why))
			return false;
	}
	if (call->json)
		print_sums_json(call, service, &sums);
	else
		print_sums(call, service, &sums);
	return true;
}

static bool is_served(const json_t *served, const char *service)
{
	size_t index;
	json_t *name;

	json_array_foreach((json_t *)served, index, name)
	{
		if (json_is_string(name) && strcmp(json_string_value(name), service) == 0)
			return true;
	}
	return false;
}

static bool erase_all(struct erase_call *call, const json_t *served, char *why)
{
	for (size_t i = 0; i < json_array_size(served); i++) {
		const char *service = json_string_value(json_array_get(served, i));

		if (!service || !client_is_name(service)) {
			snprintf(
				why, CLIENT_WHY_SIZE, "the server's list of services is not valid");
			return false;
		}
		if (!erase_service(call, service, why))
			return false;
	}
	for (size_t i = 0; known_services[i]; i++) {
		if (!is_served(served, known_services[i]))
			printf(call->json ? "{\"service\":\"%s\",\"served\":false}\n"
					  : "%s: not on this server\n",
				known_services[i]);
	}
	return true;
}

static bool run(struct erase_call *call, char *why)
{
	struct client_answer answer;
	bool ok;

	if (!client_get(call->client, "/operator/erase", &answer, why))
		return false;
	ok = answer.http_status == 200;
	if (ok)
		ok = erase_all(call, json_object_get(answer.json, "services"), why);
	else
		client_read_problem(call->client, &answer, why);
	client_answer_release(&answer);
	return ok;
}

int erase_run(const struct settings *settings, const struct operands *operands)
{
	struct erase_call call = {
		.dry_run = operands_flag(operands, "dry-run") != NULL,
		.json = operands_flag(operands, "json") != NULL,
	};
	char why[CLIENT_WHY_SIZE];
	bool ok;

	if (operands->word_count != 1)
		return report_failure(
			EXIT_USAGE, "usage: quipu erase-user ID [--dry-run] [--json]");
	call.user_id = operands->words[0];
	call.client = client_open(settings, why);
	if (!call.client)
		return report_failure(EXIT_USAGE, "%s", why);
	arena_init(&call.arena, 4096);
	ok = run(&call, why);
	arena_release(&call.arena);
	client_close(call.client);
	return ok ? EXIT_SUCCESS : report_failure(EXIT_FAILURE, "%s", why);
}

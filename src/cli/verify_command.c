/*
 * A check runs page by page: for each request, the server checks some rows and returns where to
 * continue, so that no request takes long. Differences are printed as they arrive. After a repair,
 * all rows are checked a second time, and the differences found then are counted but not printed. A
 * row that still differs either could not be repaired or differs because an event is in transit.
 */
#include "cli/verify_command.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/client.h"
#include "cli/progress.h"
#include "cli/report.h"

#define UNREAD "unread"

const char *const verify_flags[] = {OWN_SWITCH "repair", OWN_SWITCH "json", NULL};

static const char *const known_services[] = {
	"counts", "limits", "entitlements", "notifications", "pots", "dialogs", UNREAD, NULL};

struct verify {
	struct client *client;
	struct arena arena; /* memory for one request */
	bool wants_repair;
	bool json;
	/* true if all services are checked: each line then begins with the name of its service */
	bool is_one_of_many;

	/* All members from here on are about the service that is being checked. */
	const char *service;
	bool repairs;
	bool is_silent;
	long long checked;
	long long differences;
	long long repaired;
	struct progress progress;
};

static bool is_unread(const struct verify *verify)
{
	return strcmp(verify->service, UNREAD) == 0;
}

/* ---- answers of the server --------------------------------------------------------------- */

static void explain_absence(const struct verify *verify, char *why)
{
	if (!verify->service)
		snprintf(why, CLIENT_WHY_SIZE, "the server runs no service that can be verified");
	else if (is_unread(verify))
		snprintf(why, CLIENT_WHY_SIZE,
			"the server does not run both dialogs and counters; use --server to "
			"name a server that does");
	else
		snprintf(why, CLIENT_WHY_SIZE,
			"%s: the server does not run this service; use --server to name a server "
			"that does",
			verify->service);
}

/* Returns true if the answer has the status 200; otherwise writes the reason to `why`. */
static bool is_good(const struct verify *verify, const struct client_answer *answer, char *why)
{
	struct slice code = client_text(answer->json, "code");

	if (answer->http_status == 200)
		return true;
	if (slice_is(code, status_code(STATUS_ROUTE_NOT_FOUND)) ||
		slice_is(code, status_code(STATUS_ROLE_NOT_HERE)))
		explain_absence(verify, why);
	else
		client_read_problem(verify->client, answer, why);
	return false;
}

/* ---- repairing --------------------------------------------------------------------------- */

static bool repair(struct verify *verify, struct slice user_id, long long *repaired, char *why)
{
	struct buffer target = buffer_make(&verify->arena, 128);
	struct client_answer answer;
	bool done;

	buffer_text(&target, "/operator/verify/unread/");
	buffer_percent(&target, user_id);
	buffer_text(&target, "/repair");
	buffer_char(&target, '\0');
	if (!client_post(verify->client, target.data, (struct slice){0}, &answer, why))
		return false;
	done = is_good(verify, &answer, why);
	*repaired = json_integer_value(json_object_get(answer.json, "repaired"));
	client_answer_release(&answer);
	return done;
}

/* ---- output ------------------------------------------------------------------------------ */

/* Prints the difference as the server sent it, with the service as its first member. */
static void print_json(struct verify *verify, const json_t *difference)
{
	char *members = report_json(difference, JSON_COMPACT);

	printf("{\"service\":\"%s\",%s\n", verify->service, members + 1);
	free(members);
}

static void print_difference(struct verify *verify, const json_t *difference)
{
	struct buffer line = buffer_make(&verify->arena, 256);

	progress_hide(&verify->progress);
	if (verify->json) {
		print_json(verify, difference);
		return;
	}
	text_escape_log(&line, client_text(difference, "detail"));
	buffer_char(&line, '\0');
	printf("%s%s%s\n", verify->is_one_of_many ? verify->service : "",
		verify->is_one_of_many ? ": " : "", line.data);
}

static bool take_difference(struct verify *verify, const json_t *difference, char *why)
{
	long long repaired = 0;

	if (!verify->is_silent)
		print_difference(verify, difference);
	verify->differences++;
	if (verify->repairs && !repair(verify, client_text(difference, "userId"), &repaired, why))
		return false;
	verify->repaired += repaired;
	return true;
}

/* ---- pages ------------------------------------------------------------------------------- */

static bool take_page(struct verify *verify, const json_t *page, char *why)
{
	const json_t *differences = json_object_get(page, "differences");

	verify->checked += json_integer_value(json_object_get(page, "checked"));
	for (size_t i = 0; i < json_array_size(differences); i++) {
		const json_t *difference = json_array_get(differences, i);

		if (json_object_size(difference) == 0) {
			snprintf(why, CLIENT_WHY_SIZE,
				"the server's list of differences is not valid");
			return false;
		}
		if (!take_difference(verify, difference, why))
			return false;
	}
	return true;
}

/* Fetches the page after the cursor `*after`. Prints the page's differences if is_silent is false,
 * and repairs them if `repairs` is true. Sets `*after` to the cursor for the next page, or to ""
 * after the last page. */
static bool ask_page(struct verify *verify, char **after, char *why)
{
	struct buffer target = buffer_make(&verify->arena, 128);
	struct client_answer answer;
	bool good;

	buffer_format(&target, "/operator/verify/%s?after=", verify->service);
	buffer_percent(&target, slice_of(*after));
	buffer_char(&target, '\0');
	if (!client_get(verify->client, target.data, &answer, why))
		return false;
	good = is_good(verify, &answer, why) && take_page(verify, answer.json, why);
	free(*after);
	*after = qp_strdup(good && client_text(answer.json, "next").data
				   ? json_string_value(json_object_get(answer.json, "next"))
				   : "");
	client_answer_release(&answer);
	return good;
}

static bool ask_all(struct verify *verify, char *why)
{
	char *after = qp_strdup("");
	bool good = true;

	verify->checked = verify->differences = 0;
	progress_begin(&verify->progress, verify->service, 0);
	do {
		arena_reset(&verify->arena);
		good = ask_page(verify, &after, why);
		progress_at(&verify->progress, verify->checked);
	} while (good && *after);
	progress_hide(&verify->progress);
	free(after);
	return good;
}

/* ---- services ---------------------------------------------------------------------------- */

/* Writes 1204 as "1,204". */
static const char *grouped(long long number, char text[32])
{
	char digits[32];
	int len = snprintf(digits, sizeof(digits), "%lld", number);
	int out = 0;

	for (int i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			text[out++] = ',';
		text[out++] = digits[i];
	}
	text[out] = '\0';
	return text;
}

static void conclude_unread(const struct verify *verify)
{
	const char *prefix = verify->is_one_of_many ? UNREAD ": " : "";

	if (verify->differences == 0)
		printf("%s%lld user%s, all counters are right%s\n", prefix, verify->checked,
			verify->checked == 1 ? "" : "s", verify->repaired > 0 ? " now" : "");
	else
		printf("%s%lld user%s, %lld counter%s%s\n", prefix, verify->checked,
			verify->checked == 1 ? "" : "s", verify->differences,
			verify->differences == 1 ? " differs" : "s differ",
			verify->is_silent ? " after the repair; verify again, because events may "
					    "be in transit"
					  : "; some may differ only because events are in transit");
}

static void conclude(const struct verify *verify)
{
	char checked[32], differences[32];

	if (verify->json && is_unread(verify))
		printf("{\"service\":\"" UNREAD "\",\"checked\":%lld,\"users\":%lld,"
		       "\"differences\":%lld,\"repaired\":%lld}\n",
			verify->checked, verify->checked, verify->differences, verify->repaired);
	else if (verify->json)
		printf("{\"service\":\"%s\",\"checked\":%lld,\"differences\":%lld}\n",
			verify->service, verify->checked, verify->differences);
	else if (is_unread(verify))
		conclude_unread(verify);
	else if (verify->differences == 0)
		printf("%s: %s checked, all right\n", verify->service,
			grouped(verify->checked, checked));
	else
		printf("%s: %s checked, %s differ\n", verify->service,
			grouped(verify->checked, checked),
			grouped(verify->differences, differences));
}

/* Checks all rows again after a repair. Counts the differences but does not print them. A row that
 * still differs either could not be repaired or differs because an event is in transit. */
static bool check_again(struct verify *verify, char *why)
{
	verify->repairs = false;
	verify->is_silent = true;
	return ask_all(verify, why);
}

static void print_failure(struct verify *verify, const char *why)
{
	struct buffer escaped = buffer_make(&verify->arena, 128);
	struct buffer text = buffer_make(&verify->arena, 128);

	if (verify->json) {
		text_escape_log(&escaped, slice_of(why));
		buffer_json_string(&text, buffer_slice(&escaped));
		buffer_char(&text, '\0');
		printf("{\"service\":\"%s\",\"error\":%s}\n", verify->service, text.data);
	}
	report_failure(EXIT_FAILURE, "%s", why);
}

static int run_service(struct verify *verify, const char *service)
{
	char why[CLIENT_WHY_SIZE];

	verify->service = service;
	verify->repairs = verify->wants_repair;
	verify->is_silent = false;
	verify->repaired = 0;
	if (!ask_all(verify, why) ||
		(verify->repairs && verify->differences > 0 && !check_again(verify, why))) {
		print_failure(verify, why);
		return EXIT_FAILURE;
	}
	conclude(verify);
	return verify->differences == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_all(struct verify *verify)
{
	struct client_answer answer;
	const json_t *services;
	char why[CLIENT_WHY_SIZE];
	int code = EXIT_SUCCESS;

	verify->is_one_of_many = true;
	if (!client_get(verify->client, "/operator/verify", &answer, why))
		return report_failure(EXIT_FAILURE, "%s", why);
	if (!is_good(verify, &answer, why)) {
		client_answer_release(&answer);
		return report_failure(EXIT_FAILURE, "%s", why);
	}
	services = json_object_get(answer.json, "services");
	for (size_t i = 0; i < json_array_size(services); i++) {
		const char *service = json_string_value(json_array_get(services, i));

		if (!service || !client_is_name(service))
			code = report_failure(
				EXIT_FAILURE, "the server's list of services is not valid");
		else if (run_service(verify, service) != EXIT_SUCCESS)
			code = EXIT_FAILURE;
	}
	client_answer_release(&answer);
	return code;
}

/* ---- running ----------------------------------------------------------------------------- */

static bool is_known(const char *service)
{
	size_t i = 0;

	while (known_services[i] && strcmp(known_services[i], service) != 0)
		i++;
	return known_services[i] != NULL;
}

/* If the word on the command line is not a service but resembles one, returns that service.
 * Otherwise returns NULL. */
static const char *meant_service(const struct operands *operands)
{
	if (operands->word_count != 1 || is_known(operands->words[0]))
		return NULL;
	return nearest_name(slice_of(operands->words[0]), known_services);
}

static const char *wrong_use(const struct verify *verify, const struct operands *operands)
{
	if (operands->word_count > 1 ||
		(operands->word_count == 1 && !is_known(operands->words[0])))
		return "usage: quipu verify "
		       "[counts|limits|entitlements|notifications|pots|dialogs|unread] "
		       "[--repair] [--json]";
	if (verify->wants_repair &&
		(operands->word_count == 0 || strcmp(operands->words[0], UNREAD) != 0))
		return "only unread can be repaired: quipu verify unread --repair";
	return NULL;
}

int verify_run(const struct settings *settings, const struct operands *operands)
{
	struct verify verify = {
		.wants_repair = operands_flag(operands, "repair") != NULL,
		.json = operands_flag(operands, "json") != NULL,
	};
	const char *wrong = wrong_use(&verify, operands);
	char why[CLIENT_WHY_SIZE];
	int code;

	if (meant_service(operands))
		return report_failure(EXIT_USAGE, "there is no service \"%s\"; did you mean %s?",
			operands->words[0], meant_service(operands));
	if (wrong)
		return report_failure(EXIT_USAGE, "%s", wrong);
	verify.client = client_open(settings, why);
	if (!verify.client)
		return report_failure(EXIT_USAGE, "%s", why);
	arena_init(&verify.arena, 16 * 1024);
	code = operands->word_count == 1 ? run_service(&verify, operands->words[0])
					 : run_all(&verify);
	arena_release(&verify.arena);
	client_close(verify.client);
	return code;
}

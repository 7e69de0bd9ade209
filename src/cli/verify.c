#include "cli/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"
#include "cli/client.h"

const char *const verify_flags[] = {OWN_SWITCH "repair", OWN_SWITCH "json", NULL};

struct verify {
	struct client *client;
	struct arena arena; /* of one request */
	bool repairs;
	bool json;
	bool is_silent;
	long long users;
	long long differences;
	long long repaired;
};

static int fail(int code, const char *why)
{
	fprintf(stderr, "quipu: %s\n", why);
	return code;
}

/* false: `why` says what the server answered. */
static bool is_good(const struct verify *verify, const struct client_answer *answer, char *why)
{
	struct slice code = client_text(answer->json, "code");

	if (answer->http_status == 200)
		return true;
	if (slice_is(code, status_code(STATUS_ROUTE_NOT_FOUND)))
		snprintf(why, CLIENT_WHY_SIZE,
			"dialogs and counters do not both run there; name a server where they do "
			"with --server");
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

static void tell(struct verify *verify, struct slice user_id, const json_t *difference)
{
	long long unread = json_integer_value(json_object_get(difference, "unread"));
	long long counted = json_integer_value(json_object_get(difference, "counted"));
	struct buffer line = buffer_make(&verify->arena, 128);

	if (verify->json)
		buffer_json_string(&line, user_id);
	else
		text_escape_log(&line, user_id);
	buffer_char(&line, '\0');
	if (verify->json)
		printf("{\"userId\":%s,\"unread\":%lld,\"counted\":%lld}\n", line.data, unread,
			counted);
	else
		printf("%s has %lld unread, and %lld are counted\n", line.data, unread, counted);
}

static bool take_difference(struct verify *verify, const json_t *difference, char *why)
{
	struct slice user_id = client_text(difference, "userId");
	long long repaired = 0;

	if (!verify->is_silent)
		tell(verify, user_id, difference);
	verify->differences++;
	if (verify->repairs && !repair(verify, user_id, &repaired, why))
		return false;
	verify->repaired += repaired;
	return true;
}

/* ---- pages ------------------------------------------------------------------------------- */

static bool take_page(struct verify *verify, const json_t *page, char *why)
{
	const json_t *differences = json_object_get(page, "differences");

	verify->users += json_integer_value(json_object_get(page, "users"));
	for (size_t i = 0; i < json_array_size(differences); i++) {
		if (!take_difference(verify, json_array_get(differences, i), why))
			return false;
	}
	return true;
}

/* Asks for the page after `*after`, which moves on; it is empty behind the last. */
static bool ask_page(struct verify *verify, char **after, char *why)
{
	struct buffer target = buffer_make(&verify->arena, 128);
	struct client_answer answer;
	bool good;

	buffer_text(&target, "/operator/verify/unread?after=");
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

	do {
		arena_reset(&verify->arena);
		good = ask_page(verify, &after, why);
	} while (good && *after);
	free(after);
	return good;
}

/* ---- running ----------------------------------------------------------------------------- */

/* Looks again after a repair, in silence: what differs now could not be repaired. */
static bool look_again(struct verify *verify, char *why)
{
	verify->users = verify->differences = 0;
	verify->repairs = false;
	verify->is_silent = true;
	return ask_all(verify, why);
}

static int conclude(const struct verify *verify)
{
	if (verify->json)
		printf("{\"users\":%lld,\"differences\":%lld,\"repaired\":%lld}\n", verify->users,
			verify->differences, verify->repaired);
	else if (verify->differences == 0)
		printf("%lld users, all counters are right%s\n", verify->users,
			verify->repaired > 0 ? " now" : "");
	else
		printf("%lld users, %lld counters differ%s\n", verify->users, verify->differences,
			verify->is_silent ? ", and cannot be repaired"
					  : "; what is still on its way looks so too");
	return verify->differences == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int verify_run(const struct settings *settings, const struct operands *operands)
{
	struct verify verify = {
		.repairs = operands_flag(operands, "repair") != NULL,
		.json = operands_flag(operands, "json") != NULL,
	};
	char why[CLIENT_WHY_SIZE];
	bool good;

	if (operands->word_count != 1 || strcmp(operands->words[0], "unread") != 0)
		return fail(EXIT_USAGE, "this is used as: quipu verify unread [--repair] [--json]");
	verify.client = client_open(settings, why);
	if (!verify.client)
		return fail(EXIT_USAGE, why);
	arena_init(&verify.arena, 16 * 1024);
	good = ask_all(&verify, why) &&
	       (!verify.repairs || verify.differences == 0 || look_again(&verify, why));
	arena_release(&verify.arena);
	client_close(verify.client);
	return good ? conclude(&verify) : fail(EXIT_FAILURE, why);
}

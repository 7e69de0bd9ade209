/*
 * Sends requests to JetStream's API and reads the replies; both are in JSON. The adapter does not
 * use cnats's structures for requests, because they have no members for settings that are newer
 * than this version of cnats. An update of a stream would lose such settings, because the request
 * must repeat every setting that it does not change.
 */
#include <stdio.h>

#include "adapters/bus/nats/nats_internal.h"

#define API_TIMEOUT_NS (5 * NS_PER_S)

int64_t nats_json_int(const json_t *object, const char *name)
{
	return (int64_t)json_integer_value(json_object_get(object, name));
}

const char *nats_json_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "";
}

static void read_error(struct nats_answer *answer)
{
	const json_t *error = json_object_get(answer->body, "error");

	if (!error)
		return;
	answer->error = nats_json_int(error, "err_code");
	if (answer->error <= 0)
		answer->error = -1;
	snprintf(answer->words, sizeof(answer->words), "%s", nats_json_text(error, "description"));
}

static void read_answer(natsMsg *letter, struct nats_answer *answer)
{
	char why[JSON_WHY_SIZE];
	int len = natsMsg_GetDataLength(letter);

	answer->body = json_parse_object(slice_make(natsMsg_GetData(letter), (size_t)len), why);
	if (answer->body) {
		read_error(answer);
		return;
	}
	snprintf(answer->words, sizeof(answer->words), "JetStream's reply is not readable");
	answer->error = -1;
}

void nats_api_call(struct nats_mailbox *mailbox, const char *subject, struct slice request,
	const _Atomic bool *hurry, struct nats_answer *answer)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + API_TIMEOUT_NS;
	natsMsg *letter = NULL;
	enum nats_mail mail =
		nats_mailbox_request(mailbox, subject, request, until_ns, hurry, &letter);

	memset(answer, 0, sizeof(*answer));
	if (mail == NATS_LETTER) {
		read_answer(letter, answer);
		natsMsg_Destroy(letter);
		return;
	}
	snprintf(answer->words, sizeof(answer->words), "JetStream %s",
		mail == NATS_NOBODY ? "is not enabled" : "does not respond");
	answer->error = -1;
}

void nats_answer_release(struct nats_answer *answer)
{
	json_decref(answer->body);
	answer->body = NULL;
}

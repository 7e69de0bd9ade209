/* Creates durables (the durable consumers on the server, one for each group), compares them with
 * their streams, and reads messages that the server no longer delivers, because it has delivered
 * them too often. */
#include <stdio.h>

#include "adapters/bus/nats/nats_consuming.h"
#include "base/log.h"

/* How many unacknowledged messages all members of a group together may hold. A member fetches at
 * most 256 messages at a time (flow/intake.c), so this is enough for 16 members. */
#define MAX_ACK_PENDING 4096

/* The maximum number and total size of unread reports of messages that the server no longer
 * delivers. cnats drops further reports. */
#define REPORTS_MAX 4096
#define REPORTS_BYTES_MAX (4 * 1024 * 1024)

#define SUBJECT_SIZE (2 * NATS_NAME_SIZE + 80)

static void call_api(struct nats_mailbox *mailbox, const char *verb,
	const struct nats_durable *durable, const char *request, const _Atomic bool *hurry,
	struct nats_answer *answer)
{
	char subject[SUBJECT_SIZE];

	snprintf(subject, sizeof(subject), "$JS.API.CONSUMER.%s.%s.%s", verb, durable->stream,
		durable->name);
	nats_api_call(mailbox, subject, slice_of(request), hurry, answer);
}

/* ---- creating ---------------------------------------------------------------------------- */

static void create(const struct nats_durable *durable, struct nats_bus *bus,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, struct nats_answer *answer)
{
	char request[4 * NATS_NAME_SIZE + 320];
	bool filtered = durable->subject != NULL;

	snprintf(request, sizeof(request),
		"{\"stream_name\":\"%s\",\"config\":{\"durable_name\":\"%s\",\"deliver_policy\":"
		"\"all\",\"ack_policy\":\"explicit\",\"replay_policy\":\"instant\",\"ack_wait\":"
		"%lld,\"max_deliver\":%lld,\"max_ack_pending\":%d%s%s%s}}",
		durable->stream, durable->name, (long long)bus->url.ack_wait_ns,
		(long long)bus->url.max_deliver, MAX_ACK_PENDING,
		filtered ? ",\"filter_subject\":\"" : "", filtered ? durable->subject : "",
		filtered ? "\"" : "");
	call_api(mailbox, "DURABLE.CREATE", durable, request, hurry, answer);
	if (answer->error == 0)
		log_line(LOG_INFO, "bus", "%s: created durable consumer %s of stream %s",
			bus->base.name, durable->name, durable->stream);
}

/* Reads the durable's settings. Returns false if this adapter cannot use the durable, because it is
 * not a pull consumer with explicit acknowledgements. */
static bool note_config(struct nats_durable *durable, const json_t *config)
{
	if (*nats_json_text(config, "deliver_subject") ||
		strcmp(nats_json_text(config, "ack_policy"), "explicit") != 0)
		return false;
	durable->ack_wait_ns = nats_json_int(config, "ack_wait");
	durable->max_deliver = nats_json_int(config, "max_deliver");
	return true;
}

bool nats_durable_ensure(struct nats_durable *durable, struct nats_bus *bus,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, char *why, size_t size)
{
	struct nats_answer answer;
	bool ready;

	call_api(mailbox, "INFO", durable, "", hurry, &answer);
	if (answer.error == JSConsumerNotFoundErr) {
		nats_answer_release(&answer);
		create(durable, bus, mailbox, hurry, &answer);
	}
	if (answer.error == JSStreamNotFoundErr)
		atomic_store(&bus->check_soon, true);
	ready = answer.error == 0 && note_config(durable, json_object_get(answer.body, "config"));
	if (answer.error != 0)
		snprintf(why, size, "%s", answer.words);
	else if (!ready)
		snprintf(why, size,
			"a consumer of that name exists and is not a pull consumer with explicit "
			"acks");
	nats_answer_release(&answer);
	return ready;
}

/* ---- comparing with the stream ----------------------------------------------------------- */

/* Returns true if the server refused the last request because the user has no permission. In this
 * case warns once per channel, because a loss of the stream's end cannot be repaired without that
 * permission. */
static bool is_forbidden(const struct nats_durable *durable, const struct nats_comparing *comparing)
{
	const struct nats_link *link = comparing->mailbox->link;

	if (!link || !atomic_load(&link->forbidden))
		return false;
	if (!comparing->channel->forbidden)
		log_line(LOG_WARN, "bus",
			"%s: NATS does not permit this user to compare consumer %s with stream %s; "
			"if the server loses the end of the stream, messages may not be delivered",
			comparing->bus->base.name, durable->name, durable->stream);
	comparing->channel->forbidden = true;
	return true;
}

/* Like call_api(). Returns false after writing the reason if the request failed for another reason
 * than a durable that does not exist or a permission that the user lacks. */
static bool call_if_permitted(const struct nats_comparing *comparing, const char *verb,
	const struct nats_durable *durable, struct nats_answer *answer)
{
	struct nats_mailbox *mailbox = comparing->mailbox;

	atomic_store(&mailbox->link->forbidden, false);
	call_api(mailbox, verb, durable, "", &mailbox->link->forbidden, answer);
	if (answer->error == 0 || answer->error == JSConsumerNotFoundErr)
		return true;
	snprintf(comparing->why, comparing->why_size, "%s", answer->words);
	return is_forbidden(durable, comparing);
}

bool nats_durable_delivered(const struct nats_durable *durable,
	const struct nats_comparing *comparing, int64_t *sequence)
{
	struct nats_answer answer;
	bool done = call_if_permitted(comparing, "INFO", durable, &answer);

	*sequence = answer.error == 0
			    ? nats_json_int(json_object_get(answer.body, "delivered"), "stream_seq")
			    : 0;
	nats_answer_release(&answer);
	return done;
}

bool nats_durable_restart(
	const struct nats_durable *durable, const struct nats_comparing *comparing)
{
	struct nats_answer answer;
	bool done = call_if_permitted(comparing, "DELETE", durable, &answer);

	if (answer.error == 0 || answer.error == JSConsumerNotFoundErr)
		log_line(LOG_WARN, "bus",
			"%s: NATS has lost the end of stream %s, which consumer %s has read; "
			"delivering the stream again and skipping messages that were already "
			"handled",
			comparing->bus->base.name, durable->stream, durable->name);
	nats_answer_release(&answer);
	return done;
}

/* ---- messages that the server no longer delivers ----------------------------------------- */

natsSubscription *nats_durable_listen(const struct nats_durable *durable, struct nats_link *link)
{
	char subject[SUBJECT_SIZE];
	natsSubscription *reports;

	snprintf(subject, sizeof(subject), "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.%s.%s",
		durable->stream, durable->name);
	reports = nats_link_listen(link, subject, durable->name);
	if (reports)
		natsSubscription_SetPendingLimits(reports, REPORTS_MAX, REPORTS_BYTES_MAX);
	return reports;
}

/* Returns the sequence in a report, or 0 if the report is not readable. */
static uint64_t sequence_in(natsMsg *report)
{
	char why[JSON_WHY_SIZE];
	int len = natsMsg_GetDataLength(report);
	json_t *body = json_parse_object(slice_make(natsMsg_GetData(report), (size_t)len), why);
	int64_t sequence = nats_json_int(body, "stream_seq");

	json_decref(body);
	return sequence > 0 ? (uint64_t)sequence : 0;
}

uint64_t nats_durable_given_up(natsSubscription *reports)
{
	natsMsg *report = NULL;
	uint64_t sequence = 0;

	while (sequence == 0 && natsSubscription_NextMsg(&report, reports, 0) == NATS_OK) {
		sequence = sequence_in(report);
		natsMsg_Destroy(report);
	}
	return sequence;
}

enum nats_found nats_durable_read(const struct nats_durable *durable, struct nats_mailbox *mailbox,
	const _Atomic bool *hurry, uint64_t sequence, natsMsg **message, int64_t *time_us)
{
	char subject[SUBJECT_SIZE], request[48];
	enum nats_found found = NATS_NOT_NOW;
	struct nats_answer answer;

	snprintf(subject, sizeof(subject), "$JS.API.STREAM.MSG.GET.%s", durable->stream);
	snprintf(request, sizeof(request), "{\"seq\":%llu}", (unsigned long long)sequence);
	nats_api_call(mailbox, subject, slice_of(request), hurry, &answer);
	if (answer.error == JSNoMessageFoundErr)
		found = NATS_GONE;
	else if (answer.error == 0 &&
		 nats_stored_read(json_object_get(answer.body, "message"), message, time_us))
		found = NATS_FOUND;
	nats_answer_release(&answer);
	return found;
}

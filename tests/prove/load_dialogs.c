/*
 * Clients of dialogs and counters: users write to each other, and read what they got one by one,
 * many at once, up to a message, and now and then a second time. The first users are written to
 * more often: their counters are followed by streams. The others take turns: DIALOG_USERS of them
 * are active for a few seconds. So when a fault happens, many counters change for the last time,
 * and what it did to them is still there at the end. With --previous nobody reads up to a message.
 */
#include <inttypes.h>

#include "load.h"

enum { MESSAGES = 2048, READ_BATCH_MAX = 16 };

/* Each turn has its own users; after the last turn, the first one begins again. */
enum { TURNS = 20, TURN_US = 3000000 };

enum { KIND_SEND = 1, KIND_OTHER };

struct message {
	uint32_t receiver;
	uint32_t sender;
	char id[ID_MAX];
};

static struct message messages[MESSAGES]; /* a ring of those that were sent */
static uint32_t messages_sent;

void dialog_user(const struct load *load, uint32_t number, char name[NAME_MAX_LENGTH])
{
	snprintf(name, NAME_MAX_LENGTH, "%sd%u", load->prefix, number);
}

/* Returns a user whose turn it is. */
static uint32_t active_user(struct load *load)
{
	uint32_t turn = (uint32_t)((load->now_us - load->phase_us) / TURN_US % TURNS);

	return turn * DIALOG_USERS + random_below(&load->random, DIALOG_USERS);
}

static void send_message(struct load *load, struct operation *o)
{
	bool followed = random_below(&load->random, 3) == 0;
	char sender[NAME_MAX_LENGTH];
	char receiver[NAME_MAX_LENGTH];
	char body[256];

	o->kind = KIND_SEND;
	o->subject = followed ? random_below(&load->random, FOLLOWED_USERS) : active_user(load);
	o->other = active_user(load);
	dialog_user(load, o->subject, receiver);
	dialog_user(load, o->other, sender);
	snprintf(body, sizeof(body), "{\"receiverId\":\"%s\",\"text\":\"m%" PRIu64 "\"}", receiver,
		o->id);
	operation_describe(o, "send %s %s m%" PRIu64, sender, receiver, o->id);
	operation_request(load, o, "POST", "/dialogs/send", sender, body);
}

static void read_one(struct load *load, struct operation *o, const struct message *message)
{
	char user[NAME_MAX_LENGTH];
	char path[128];

	dialog_user(load, message->receiver, user);
	snprintf(path, sizeof(path), "/dialogs/read/%s", message->id);
	operation_describe(o, "read %s %s", user, message->id);
	operation_request(load, o, "POST", path, user, NULL);
}

static void read_up_to(struct load *load, struct operation *o, const struct message *message)
{
	char user[NAME_MAX_LENGTH];
	char sender[NAME_MAX_LENGTH];
	char body[256];

	dialog_user(load, message->receiver, user);
	dialog_user(load, message->sender, sender);
	snprintf(body, sizeof(body), "{\"senderId\":\"%s\",\"messageId\":\"%s\"}", sender,
		message->id);
	operation_describe(o, "readupto %s %s %s", user, sender, message->id);
	operation_request(load, o, "POST", "/dialogs/read-up-to", user, body);
}

/* Messages of one receiver, among them some that were read before. */
static void read_batch(struct load *load, struct operation *o, uint32_t known)
{
	uint32_t start = random_below(&load->random, known);
	uint32_t receiver = messages[start].receiver;
	char user[NAME_MAX_LENGTH];
	char body[1400] = "{\"messageIds\":[";
	char what[WHAT_MAX] = "";
	size_t size = strlen(body);
	size_t length = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < known && count < READ_BATCH_MAX; i++) {
		const struct message *message = &messages[(start + i) % known];

		if (message->receiver != receiver)
			continue;
		size += (size_t)snprintf(body + size, sizeof(body) - size, "%s\"%s\"",
			count ? "," : "", message->id);
		length += (size_t)snprintf(what + length, sizeof(what) - length, "%s%s",
			count ? "," : "", message->id);
		count++;
	}
	snprintf(body + size, sizeof(body) - size, "]}");
	dialog_user(load, receiver, user);
	operation_describe(o, "readbatch %s %s", user, what);
	operation_request(load, o, "POST", "/dialogs/read-batch", user, body);
}

static bool dialogs_next(struct load *load, struct operation *o)
{
	uint32_t dice = random_below(&load->random, 100);
	uint32_t known = messages_sent < MESSAGES ? messages_sent : MESSAGES;
	const struct message *message;

	if (dice < 60 || known == 0) {
		send_message(load, o);
		return true;
	}
	message = &messages[random_below(&load->random, known)];
	o->kind = KIND_OTHER;
	if (dice < 88)
		read_one(load, o, message);
	else if (dice < 96 || load->options.previous)
		read_batch(load, o, known);
	else
		read_up_to(load, o, message);
	return true;
}

static void dialogs_answered(
	struct load *load, const struct operation *o, const struct response *response)
{
	struct message *message = &messages[messages_sent % MESSAGES];

	if (o->kind != KIND_SEND || response->status != 200)
		return;
	if (!response_string(response, "messageId", message->id, sizeof(message->id)))
		die("a message has no id: %.*s", (int)response->body_length, response->body);
	message->receiver = o->subject;
	message->sender = o->other;
	messages_sent++;
}

static bool counters_next(struct load *load, struct operation *o)
{
	char user[NAME_MAX_LENGTH];
	char path[128];

	dialog_user(load, active_user(load), user);
	snprintf(path, sizeof(path), "/counters/user/%s/UnreadMessages", user);
	o->keyed = false;
	operation_describe(o, "get %s", user);
	operation_request(load, o, "GET", path, NULL, NULL);
	return true;
}

const struct role_play dialogs_play = {
	.name = "dialogs",
	.share = 11,
	.next = dialogs_next,
	.answered = dialogs_answered,
};

const struct role_play counters_play = {
	.name = "counters",
	.share = 7,
	.next = counters_next,
};

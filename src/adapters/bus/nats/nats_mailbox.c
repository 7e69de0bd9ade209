/*
 * Receives the replies to one thread's requests. The same thread reads the replies, so there are no
 * callbacks and no shared state.
 */
#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/nats/nats_internal.h"

/* The interval at which a wait checks `hurry`. */
#define GLANCE_NS (100 * NS_PER_MS)

bool nats_mailbox_open(struct nats_mailbox *mailbox, struct nats_link *link)
{
	natsInbox *inbox = NULL;
	char subject[NATS_ADDRESS_SIZE];

	assert(!mailbox->link);
	if (natsInbox_Create(&inbox) != NATS_OK)
		return false;
	snprintf(mailbox->inbox, sizeof(mailbox->inbox), "%s", inbox);
	natsInbox_Destroy(inbox);
	snprintf(subject, sizeof(subject), "%s.>", mailbox->inbox);
	mailbox->subscription = nats_link_listen(link, subject, NULL);
	if (!mailbox->subscription)
		return false;
	mailbox->link = link;
	mailbox->stale = false;
	return true;
}

void nats_mailbox_close(struct nats_mailbox *mailbox)
{
	if (!mailbox->link)
		return;
	nats_link_unsubscribe(mailbox->link, mailbox->subscription);
	mailbox->subscription = NULL;
	mailbox->link = NULL;
}

/*
 * If a request has no receiver, the server itself replies. cnats hides the address of that reply,
 * so the mailbox cannot determine the round of the reply. Therefore the round that follows an
 * abandoned round gets a new inbox.
 */
bool nats_mailbox_begin(struct nats_mailbox *mailbox)
{
	struct nats_link *link = mailbox->link;

	if (!link)
		return false;
	mailbox->round++;
	if (!mailbox->stale)
		return true;
	nats_mailbox_close(mailbox);
	mailbox->stale = false;
	if (nats_mailbox_open(mailbox, link))
		return true;
	nats_link_break(link);
	return false;
}

void nats_mailbox_abandon(struct nats_mailbox *mailbox)
{
	mailbox->stale = true;
}

void nats_mailbox_address(
	const struct nats_mailbox *mailbox, size_t number, char address[NATS_ADDRESS_SIZE])
{
	snprintf(address, NATS_ADDRESS_SIZE, "%s.%llu.%zu", mailbox->inbox,
		(unsigned long long)mailbox->round, number);
}

/* Returns true if the reply `letter` belongs to the current round of requests, and sets `*number`
 * to the number of its request. */
static bool is_of_this_round(const struct nats_mailbox *mailbox, natsMsg *letter, size_t *number)
{
	const char *address = natsMsg_GetSubject(letter);
	size_t skip = strlen(mailbox->inbox);
	char *end;

	if (strncmp(address, mailbox->inbox, skip) != 0 || address[skip] != '.')
		return false;
	if (strtoull(address + skip + 1, &end, 10) != mailbox->round || *end != '.')
		return false;
	*number = strtoull(end + 1, &end, 10);
	return *end == '\0';
}

enum nats_mail nats_mailbox_next(
	struct nats_mailbox *mailbox, natsMsg **letter, size_t *number, int64_t until_ns)
{
	natsStatus status = NATS_CONNECTION_CLOSED;
	int64_t timeout_ms;

	do {
		timeout_ms = steady_ms_until(until_ns, 60000);
		if (mailbox->link)
			status =
				natsSubscription_NextMsg(letter, mailbox->subscription, timeout_ms);
		if (status == NATS_OK && is_of_this_round(mailbox, *letter, number))
			return NATS_LETTER;
		if (status == NATS_OK)
			natsMsg_Destroy(*letter);
		if (status == NATS_NO_RESPONDERS)
			return NATS_NOBODY;
	} while (status == NATS_OK || (status == NATS_TIMEOUT && timeout_ms > 0));
	if (status != NATS_TIMEOUT && mailbox->link)
		nats_link_break(mailbox->link);
	return NATS_NOTHING;
}

enum nats_mail nats_mailbox_request(struct nats_mailbox *mailbox, const char *subject,
	struct slice request, int64_t until_ns, const _Atomic bool *hurry, natsMsg **letter)
{
	struct nats_link *link = mailbox->link;
	enum nats_mail mail = NATS_NOTHING;
	char address[NATS_ADDRESS_SIZE];
	int64_t now_ns;
	size_t number;

	if (!nats_mailbox_begin(mailbox))
		return NATS_NOTHING;
	nats_mailbox_address(mailbox, 0, address);
	if (nats_link_post(link, subject, address, request) != NATS_SENT)
		return NATS_NOTHING;
	do {
		now_ns = clock_steady_ns(&clock_system);
		mail = nats_mailbox_next(mailbox, letter, &number,
			!hurry || until_ns < now_ns + GLANCE_NS ? until_ns : now_ns + GLANCE_NS);
	} while (mail == NATS_NOTHING && now_ns + GLANCE_NS < until_ns &&
		 !(hurry && atomic_load(hurry)) && !atomic_load(&link->broken));
	if (mail == NATS_NOTHING)
		nats_mailbox_abandon(mailbox);
	return mail;
}

static const char *header(natsMsg *message, const char *name)
{
	const char *value = NULL;

	return natsMsgHeader_Get(message, name, &value) == NATS_OK && value ? value : "";
}

const char *nats_status_of(natsMsg *message)
{
	return header(message, "Status");
}

const char *nats_status_words(natsMsg *message)
{
	return header(message, "Description");
}

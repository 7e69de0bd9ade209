/*
 * A link is one connection, from opening to closing. When it ends, the watcher opens another link.
 *
 * The caller's own thread writes to the socket (SendAsap), so that a failed write is reported to
 * the caller. The thread holds the lock `writing`, so that after a failure the connection is closed
 * before another thread can write. Otherwise the server would treat the next bytes as the second
 * half of a half-written message.
 *
 * A subscription is not destroyed when it ends. The reading thread of cnats 3.4 looks up a
 * subscription under one lock, releases that lock, and only then locks the subscription; if the
 * subscription is destroyed in between, cnats uses freed memory. Therefore ended subscriptions are
 * kept until that thread has certainly finished such a look-up: until the thread has processed the
 * reply to a ping, or has ended. (nats-io/nats.c, issue 637, fixed after 3.5.)
 *
 * cnats itself destroys a subscription too early: natsConnection_Request() and all JetStream
 * functions of cnats receive their replies at a subscription that belongs to the connection, and
 * closing the connection releases that subscription while the reading thread may be using it.
 * Therefore the adapter calls none of these functions; requests go through nats_mailbox.c. A ping,
 * natsConnection_FlushTimeout(), is safe: its reply is not a message and needs no subscription.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/bus/nats/nats_internal.h"
#include "adapters/shared/growing.h"
#include "base/log.h"

#define CONNECT_TIMEOUT_MS 2000

/* How long a write to the socket waits for a server that does not read. publish() may exceed its
 * deadline by this time. */
#define WRITE_TIMEOUT_MS 400

/* The interval of cnats's own pings. They are needed only while the watcher prepares streams. At
 * all other times the watcher itself pings, and more often. */
#define PING_INTERVAL_MS 5000

/* ---- opening ----------------------------------------------------------------------------- */

/*
 * cnats calls this for errors of subscriptions and error messages of the server; without this
 * handler, cnats would write them to standard error. The adapter also detects most errors in other
 * ways. Only this handler detects that the user has no permission to send a request: such a request
 * just gets no reply.
 */
static void note_error(natsConnection *connection, natsSubscription *subscription,
	natsStatus status, void *context)
{
	struct nats_link *link =
		context; /* NULL for nats_link_check(), which only checks options */

	(void)connection;
	(void)subscription;
	if (link && status == NATS_NOT_PERMITTED)
		atomic_store(&link->forbidden, true);
	log_line(LOG_DEBUG, "bus", "cnats reports: %s", natsStatus_GetText(status));
}

/* cnats calls this when the connection is closed. From then on, the reading thread of cnats no
 * longer uses any subscription. */
static void on_closed(natsConnection *connection, void *context)
{
	struct nats_link *link = context;

	(void)connection;
	sem_post(&link->closed);
}

static natsStatus set_behaviour(natsOptions *options, const struct nats_url *url)
{
	natsStatus status = natsOptions_SetServers(
		options, (const char **)(uintptr_t)url->servers, url->server_count);

	if (status == NATS_OK)
		status = natsOptions_SetName(options, "quipu");
	if (status == NATS_OK)
		status = natsOptions_SetTimeout(options, CONNECT_TIMEOUT_MS);
	if (status == NATS_OK)
		status = natsOptions_SetAllowReconnect(options, false);
	if (status == NATS_OK)
		status = natsOptions_SetSendAsap(options, true);
	if (status == NATS_OK)
		status = natsOptions_SetWriteDeadline(options, WRITE_TIMEOUT_MS);
	if (status == NATS_OK)
		status = natsOptions_SetPingInterval(options, PING_INTERVAL_MS);
	if (status == NATS_OK)
		status = natsOptions_SetErrorHandler(options, note_error, NULL);
	return status;
}

/* Returns NULL on success, otherwise a text that names the part of the URL that cannot be used. */
static const char *set_secrets(natsOptions *options, const struct nats_url *url)
{
	if (url->user && natsOptions_SetUserInfo(options, url->user, url->password) != NATS_OK)
		return "cnats does not accept the user and password";
	if (url->token && natsOptions_SetToken(options, url->token) != NATS_OK)
		return "cnats does not accept the token";
	if (url->creds &&
		(access(url->creds, R_OK) != 0 || natsOptions_SetUserCredentialsFromFiles(
							  options, url->creds, NULL) != NATS_OK))
		return "the file named in the option creds cannot be read";
	if (url->secure && natsOptions_SetSecure(options, true) != NATS_OK)
		return "cnats cannot use TLS";
	if (url->tls_ca && natsOptions_LoadCATrustedCertificates(options, url->tls_ca) != NATS_OK)
		return "the file named in the option tls-ca cannot be used";
	if (url->tls_cert &&
		natsOptions_LoadCertificatesChain(options, url->tls_cert, url->tls_key) != NATS_OK)
		return "the files named in the options tls-cert and tls-key cannot be used";
	return NULL;
}

static natsOptions *new_options(const struct nats_url *url, char *why, size_t size)
{
	natsOptions *options = NULL;
	natsStatus status = natsOptions_Create(&options);
	const char *bad = NULL;

	if (status == NATS_OK)
		status = set_behaviour(options, url);
	if (status == NATS_OK)
		bad = set_secrets(options, url);
	if (status == NATS_OK && !bad)
		return options;
	natsOptions_Destroy(options);
	if (bad)
		snprintf(why, size, "NATS cannot be used with this URL: %s", bad);
	else
		snprintf(why, size, "cnats refuses the adapter's options: %s",
			natsStatus_GetText(status));
	return NULL;
}

bool nats_link_check(const struct nats_url *url, char *why, size_t size)
{
	natsOptions *options = new_options(url, why, size);

	natsOptions_Destroy(options);
	return options != NULL;
}

static enum nats_trouble trouble_of(natsStatus status)
{
	switch (status) {
	case NATS_CONNECTION_AUTH_FAILED:
	case NATS_NOT_PERMITTED:
	case NATS_SECURE_CONNECTION_WANTED:
	case NATS_SECURE_CONNECTION_REQUIRED:
	case NATS_SSL_ERROR:
	case NATS_PROTOCOL_ERROR:
		return NATS_REFUSED;
	default:
		return NATS_AWAY;
	}
}

static bool connect_link(struct nats_link *link, enum nats_trouble *trouble, char *why, size_t size)
{
	natsOptions *options = new_options(&link->bus->url, why, size);
	natsStatus status;

	*trouble = NATS_REFUSED;
	if (!options)
		return false;
	status = natsOptions_SetClosedCB(options, on_closed, link);
	if (status == NATS_OK)
		status = natsOptions_SetErrorHandler(options, note_error, link);
	if (status == NATS_OK)
		status = natsConnection_Connect(&link->connection, options);
	natsOptions_Destroy(options);
	if (status == NATS_OK)
		return true;
	*trouble = trouble_of(status);
	snprintf(why, size, "%s", natsStatus_GetText(status));
	return false;
}

static void free_link(struct nats_link *link)
{
	sem_destroy(&link->closed);
	pthread_mutex_destroy(&link->writing);
	free(link->retired);
	free(link);
}

struct nats_link *nats_link_open(
	struct nats_bus *bus, enum nats_trouble *trouble, char *why, size_t size)
{
	struct nats_link *link = qp_calloc(1, sizeof(*link));

	link->bus = bus;
	link->holders = 1;
	pthread_mutex_init(&link->writing, NULL);
	sem_init(&link->closed, 0, 0);
	if (!connect_link(link, trouble, why, size)) {
		free_link(link);
		return NULL;
	}
	link->payload_max = natsConnection_GetMaxPayload(link->connection);
	return link;
}

/* ---- holding ----------------------------------------------------------------------------- */

struct nats_link *nats_link_hold(struct nats_bus *bus)
{
	struct nats_link *link = NULL;

	pthread_mutex_lock(&bus->lock);
	if (bus->link && atomic_load(&bus->up)) {
		link = bus->link;
		link->holders++;
	}
	pthread_mutex_unlock(&bus->lock);
	return link;
}

/* Destroys the `count` subscriptions that ended first. The caller has locked `writing` or is the
 * last holder of the link. */
static void destroy_retired(struct nats_link *link, size_t count)
{
	for (size_t i = 0; i < count; i++)
		natsSubscription_Destroy(link->retired[i]);
	link->retired_count -= count;
	for (size_t i = 0; i < link->retired_count; i++)
		link->retired[i] = link->retired[i + count];
}

static void end_link(struct nats_link *link)
{
	natsConnection_Close(link->connection);
	while (sem_wait(&link->closed) != 0)
		continue;
	destroy_retired(link, link->retired_count);
	natsConnection_Destroy(link->connection);
	free_link(link);
}

void nats_link_release(struct nats_link *link)
{
	struct nats_bus *bus = link->bus;
	bool last;

	pthread_mutex_lock(&bus->lock);
	assert(link->holders > 0);
	last = --link->holders == 0;
	assert(!last || bus->link != link);
	pthread_mutex_unlock(&bus->lock);
	if (last)
		end_link(link);
}

void nats_link_break(struct nats_link *link)
{
	struct nats_bus *bus = link->bus;

	pthread_mutex_lock(&bus->lock);
	atomic_store(&link->broken, true);
	if (bus->link == link)
		atomic_store(&bus->up, false);
	pthread_mutex_unlock(&bus->lock);
	natsConnection_Close(link->connection);
}

/* ---- writing ----------------------------------------------------------------------------- */

/* Returns true if cnats found the error before it wrote anything. */
static bool was_not_begun(natsStatus status)
{
	return status == NATS_MAX_PAYLOAD || status == NATS_INVALID_SUBJECT ||
	       status == NATS_INVALID_ARG || status == NATS_NO_SERVER_SUPPORT;
}

/* Converts the status that cnats returned when it sent a message. If a part of the message may have
 * been written, breaks the link. The caller has locked `writing`. */
static enum nats_sent judge(struct nats_link *link, natsStatus status)
{
	if (status == NATS_OK)
		return NATS_SENT;
	if (was_not_begun(status))
		return NATS_UNSENT;
	nats_link_break(link);
	return NATS_BROKEN;
}

enum nats_sent nats_link_send(struct nats_link *link, natsMsg *message)
{
	enum nats_sent sent = NATS_UNSENT;

	pthread_mutex_lock(&link->writing);
	if (!atomic_load(&link->broken))
		sent = judge(link, natsConnection_PublishMsg(link->connection, message));
	pthread_mutex_unlock(&link->writing);
	return sent;
}

enum nats_sent nats_link_post(
	struct nats_link *link, const char *subject, const char *reply, struct slice data)
{
	natsConnection *connection = link->connection;
	enum nats_sent sent = NATS_UNSENT;
	int len = (int)data.len;

	pthread_mutex_lock(&link->writing);
	if (!atomic_load(&link->broken))
		sent = judge(
			link, reply ? natsConnection_PublishRequest(
					      connection, subject, reply, data.data, len)
				    : natsConnection_Publish(connection, subject, data.data, len));
	pthread_mutex_unlock(&link->writing);
	return sent;
}

/* ---- subscriptions ----------------------------------------------------------------------- */

natsSubscription *nats_link_subscribe(
	struct nats_link *link, const char *subject, natsMsgHandler handler, void *context)
{
	natsSubscription *subscription = NULL;
	natsStatus status = NATS_CONNECTION_CLOSED;

	pthread_mutex_lock(&link->writing);
	if (!atomic_load(&link->broken))
		status = natsConnection_Subscribe(
			&subscription, link->connection, subject, handler, context);
	if (status != NATS_OK)
		nats_link_break(link);
	pthread_mutex_unlock(&link->writing);
	return status == NATS_OK ? subscription : NULL;
}

natsSubscription *nats_link_listen(struct nats_link *link, const char *subject, const char *queue)
{
	natsConnection *connection = link->connection;
	natsSubscription *subscription = NULL;
	natsStatus status = NATS_CONNECTION_CLOSED;

	pthread_mutex_lock(&link->writing);
	if (!atomic_load(&link->broken))
		status = queue ? natsConnection_QueueSubscribeSync(
					 &subscription, connection, subject, queue)
			       : natsConnection_SubscribeSync(&subscription, connection, subject);
	if (status != NATS_OK)
		nats_link_break(link);
	pthread_mutex_unlock(&link->writing);
	return status == NATS_OK ? subscription : NULL;
}

/* Keeps an ended subscription until it can be destroyed. The caller has locked `writing`. */
static void retire(struct nats_link *link, natsSubscription *subscription)
{
	link->retired = growing_reserve((void *)link->retired, link->retired_count,
		&link->retired_size, sizeof(link->retired[0]));
	link->retired[link->retired_count++] = subscription;
}

/* Does not check whether the link is broken, because natsSubscription_Unsubscribe() writes nothing
 * on a closed connection. */
void nats_link_unsubscribe(struct nats_link *link, natsSubscription *subscription)
{
	pthread_mutex_lock(&link->writing);
	natsSubscription_Unsubscribe(subscription);
	retire(link, subscription);
	pthread_mutex_unlock(&link->writing);
}

static size_t count_retired(struct nats_link *link)
{
	size_t count;

	pthread_mutex_lock(&link->writing);
	count = link->retired_count;
	pthread_mutex_unlock(&link->writing);
	return count;
}

natsStatus nats_link_ping(struct nats_link *link, int64_t timeout_ms)
{
	size_t retired = count_retired(link);
	natsStatus status = natsConnection_FlushTimeout(link->connection, timeout_ms);

	if (status != NATS_OK)
		return status;
	pthread_mutex_lock(&link->writing);
	destroy_retired(link, retired);
	pthread_mutex_unlock(&link->writing);
	return status;
}

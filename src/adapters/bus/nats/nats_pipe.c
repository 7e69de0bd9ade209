/*
 * A pipe carries the messages that the server sends to one consumer: a thread of cnats receives
 * them and puts them into the pipe, and the consumer's thread takes them out.
 *
 * cnats reports when it has called the handler for the last time. Until then the pipe is neither
 * reused for another link nor freed. The handler cannot be called before the first request, because
 * only a request contains the pipe's inbox, i.e. the subject to which the server must send the
 * messages.
 *
 * There is at most one request at a time. It is open while `wanted` > 0.
 */
#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/nats/nats_consuming.h"
#include "adapters/shared/growing.h"
#include "base/log.h"

/* After this time the server ends a request, and reports the end with a status message. */
#define REQUEST_NS (5 * NS_PER_S)

/* How long after REQUEST_NS the pipe still waits for the status that ends a request. */
#define REQUEST_GRACE_NS (1 * NS_PER_S)

/* The pause after a request that the server refused. */
#define REFUSED_NS (20 * NS_PER_MS)

/* How long to wait for the remaining messages of a request after its first message. */
#define REST_NS (10 * NS_PER_MS)

/* The maximum total size of one request's messages is this many bytes, or twice the server's
 * maximum payload if that is larger. */
#define REQUEST_BYTES_MAX (16 * 1024 * 1024)

#define DRAIN_TIMEOUT_MS 1000

#define SUBJECT_SIZE (2 * NATS_NAME_SIZE + 80)

/* ---- arrivals ---------------------------------------------------------------------------- */

/* The caller holds the lock. */
static void add_arrival(struct nats_pipe *pipe, natsMsg *message)
{
	pipe->arrivals = growing_reserve(pipe->arrivals, pipe->arrival_count, &pipe->arrival_size,
		sizeof(pipe->arrivals[0]));
	pipe->arrivals[pipe->arrival_count++] =
		(struct nats_arrival){message, clock_steady_ns(&clock_system)};
	pipe->brought++;
	if (pipe->wanted > 0)
		pipe->wanted--;
}

static bool is_of_last_request(const struct nats_pipe *pipe, natsMsg *status)
{
	const char *number = strrchr(natsMsg_GetSubject(status), '.');

	return number && strtoull(number + 1, NULL, 10) == pipe->request;
}

/*
 * Handles a status that the server has sent for a request. Any 4xx ends the request; 503 means that
 * the request had no receiver. The caller holds the lock.
 */
static void note_status(struct nats_pipe *pipe, natsMsg *status)
{
	const char *code = nats_status_of(status);
	bool unheard = strcmp(code, "503") == 0;
	int64_t now_ns = clock_steady_ns(&clock_system);

	if (!is_of_last_request(pipe, status) || (*code != '4' && !unheard))
		return;
	pipe->wanted = 0;
	if (unheard || strstr(nats_status_words(status), "Deleted"))
		pipe->missing = true;
	if (pipe->brought == 0 && now_ns < pipe->expires_ns - 2 * REQUEST_GRACE_NS)
		pipe->not_before_ns = now_ns + REFUSED_NS;
}

/* cnats calls this for each message. Only a delivery has a reply subject, for its acknowledgement;
 * any other message is the status of a request. */
static void on_message(
	natsConnection *connection, natsSubscription *subscription, natsMsg *message, void *context)
{
	struct nats_pipe *pipe = context;
	const char *reply = natsMsg_GetReply(message);

	(void)connection;
	(void)subscription;
	pthread_mutex_lock(&pipe->lock);
	if (reply && *reply) {
		add_arrival(pipe, message);
	} else {
		note_status(pipe, message);
		natsMsg_Destroy(message);
	}
	pthread_cond_broadcast(&pipe->changed);
	pthread_mutex_unlock(&pipe->lock);
}

/* ---- opening and closing ----------------------------------------------------------------- */

void nats_pipe_init(struct nats_pipe *pipe)
{
	steady_cond_init(&pipe->changed);
	pthread_mutex_init(&pipe->lock, NULL);
}

void nats_pipe_destroy(struct nats_pipe *pipe)
{
	assert(!pipe->link && !pipe->running && pipe->arrival_count == 0);
	free(pipe->arrivals);
	pthread_mutex_destroy(&pipe->lock);
	pthread_cond_destroy(&pipe->changed);
}

static void set_running(struct nats_pipe *pipe, bool running)
{
	pthread_mutex_lock(&pipe->lock);
	pipe->running = running;
	pthread_cond_broadcast(&pipe->changed);
	pthread_mutex_unlock(&pipe->lock);
}

static void on_complete(void *context)
{
	set_running(context, false);
}

/* Subscribes. Returns false if the link is broken; the handler is then never called. */
static bool subscribe(struct nats_pipe *pipe)
{
	char subject[NATS_ADDRESS_SIZE];

	snprintf(subject, sizeof(subject), "%s.*", pipe->inbox);
	pipe->messages = nats_link_subscribe(pipe->link, subject, on_message, pipe);
	if (!pipe->messages)
		return false;
	set_running(pipe, true);
	if (natsSubscription_SetOnCompleteCB(pipe->messages, on_complete, pipe) == NATS_OK)
		return true;
	set_running(pipe, false);
	return false;
}

bool nats_pipe_open(struct nats_pipe *pipe, struct nats_link *link)
{
	natsInbox *inbox = NULL;

	assert(!pipe->link && !pipe->running);
	if (natsInbox_Create(&inbox) != NATS_OK)
		return false;
	snprintf(pipe->inbox, sizeof(pipe->inbox), "%s", inbox);
	natsInbox_Destroy(inbox);
	pipe->link = link;
	pipe->wanted = 0;
	pipe->missing = false;
	if (subscribe(pipe))
		return true;
	nats_pipe_close(pipe);
	return false;
}

/* Drains the subscription: unsubscribes at the server, and then waits until all messages that the
 * server had already sent are in the pipe, but at most DRAIN_TIMEOUT_MS. */
void nats_pipe_close(struct nats_pipe *pipe)
{
	if (!pipe->link)
		return;
	if (pipe->messages && !atomic_load(&pipe->link->broken))
		natsSubscription_DrainTimeout(pipe->messages, DRAIN_TIMEOUT_MS);
	else
		nats_link_break(pipe->link);
	pthread_mutex_lock(&pipe->lock);
	while (pipe->running)
		pthread_cond_wait(&pipe->changed, &pipe->lock);
	pthread_mutex_unlock(&pipe->lock);
	if (pipe->messages)
		nats_link_unsubscribe(pipe->link, pipe->messages);
	pipe->messages = NULL;
	pipe->link = NULL;
}

/* ---- requesting and waiting -------------------------------------------------------------- */

/*
 * Returns the number of a new request, or 0 if no request is due. If the previous request has
 * expired without a status from the server, sets `missing`, so that the consumer checks whether the
 * durable still exists. The caller holds the lock.
 */
static uint64_t begin_request(struct nats_pipe *pipe, size_t max)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	bool unanswered = pipe->wanted > 0 && now_ns >= pipe->expires_ns;

	if (unanswered) {
		pipe->missing = true;
		pipe->wanted = 0;
	}
	if (pipe->wanted > 0 || pipe->missing || now_ns < pipe->not_before_ns)
		return 0;
	pipe->wanted = max;
	pipe->brought = 0;
	pipe->expires_ns = now_ns + REQUEST_NS + REQUEST_GRACE_NS;
	return ++pipe->request;
}

/*
 * If a request has both no_wait and expires, the server waits until it has a message, then sends
 * the messages that it has, up to `max`, and ends the request. Without no_wait, the request would
 * stay open, and the server would send messages even while the consumer does not fetch.
 */
void nats_pipe_request(struct nats_pipe *pipe, const char *stream, const char *durable, size_t max)
{
	int64_t bytes_max = 2 * pipe->link->payload_max;
	char subject[SUBJECT_SIZE];
	char reply[NATS_ADDRESS_SIZE];
	char request[160];
	uint64_t number;
	bool ended; /* cnats has closed the connection */

	pthread_mutex_lock(&pipe->lock);
	number = begin_request(pipe, max);
	ended = !pipe->running;
	pthread_mutex_unlock(&pipe->lock);
	if (ended)
		nats_link_break(pipe->link);
	if (number == 0 || ended)
		return;
	if (bytes_max < REQUEST_BYTES_MAX)
		bytes_max = REQUEST_BYTES_MAX;
	snprintf(subject, sizeof(subject), "$JS.API.CONSUMER.MSG.NEXT.%s.%s", stream, durable);
	snprintf(reply, sizeof(reply), "%s.%llu", pipe->inbox, (unsigned long long)number);
	snprintf(request, sizeof(request),
		"{\"batch\":%zu,\"max_bytes\":%lld,\"expires\":%lld,\"no_wait\":true}", max,
		(long long)bytes_max, REQUEST_NS);
	if (nats_link_post(pipe->link, subject, reply, slice_of(request)) != NATS_SENT)
		nats_link_break(pipe->link); /* nats_pipe_wait() detects the break */
}

/* Returns the time at which nats_pipe_wait() must end. The caller holds the lock. */
static int64_t wait_limit(const struct nats_pipe *pipe, int64_t until_ns)
{
	int64_t limit_ns = until_ns;

	if (atomic_load(&pipe->woken))
		return 0;
	if (pipe->missing || !pipe->running)
		return 0;
	if (pipe->arrival_count > 0) {
		limit_ns = pipe->wanted > 0 ? pipe->arrivals[0].arrived_ns + REST_NS : 0;
	} else if (pipe->wanted == 0 && pipe->not_before_ns > 0) {
		limit_ns = pipe->not_before_ns;
	} else if (pipe->wanted > 0) {
		limit_ns = pipe->expires_ns;
	}
	return limit_ns < until_ns ? limit_ns : until_ns;
}

void nats_pipe_wait(struct nats_pipe *pipe, int64_t until_ns)
{
	pthread_mutex_lock(&pipe->lock);
	for (;;) {
		int64_t limit_ns = wait_limit(pipe, until_ns);

		if (limit_ns <= clock_steady_ns(&clock_system))
			break;
		steady_wait_until(&pipe->changed, &pipe->lock, limit_ns);
	}
	pthread_mutex_unlock(&pipe->lock);
}

void nats_pipe_wake(struct nats_pipe *pipe)
{
	pthread_mutex_lock(&pipe->lock);
	atomic_store(&pipe->woken, true);
	pthread_cond_broadcast(&pipe->changed);
	pthread_mutex_unlock(&pipe->lock);
}

void nats_pipe_calm(struct nats_pipe *pipe)
{
	pthread_mutex_lock(&pipe->lock);
	atomic_store(&pipe->woken, false);
	pthread_mutex_unlock(&pipe->lock);
}

void nats_pipe_nap(struct nats_pipe *pipe, int64_t until_ns)
{
	pthread_mutex_lock(&pipe->lock);
	while (!atomic_load(&pipe->woken) && clock_steady_ns(&clock_system) < until_ns)
		steady_wait_until(&pipe->changed, &pipe->lock, until_ns);
	pthread_mutex_unlock(&pipe->lock);
}

/* ---- taking ------------------------------------------------------------------------------ */

size_t nats_pipe_take(struct nats_pipe *pipe, struct nats_arrival *arrivals, size_t max)
{
	size_t count;

	pthread_mutex_lock(&pipe->lock);
	count = pipe->arrival_count < max ? pipe->arrival_count : max;
	for (size_t i = 0; i < count; i++)
		arrivals[i] = pipe->arrivals[i];
	for (size_t i = count; i < pipe->arrival_count; i++)
		pipe->arrivals[i - count] = pipe->arrivals[i];
	pipe->arrival_count -= count;
	pthread_mutex_unlock(&pipe->lock);
	return count;
}

bool nats_pipe_take_missing(struct nats_pipe *pipe)
{
	bool missing;

	pthread_mutex_lock(&pipe->lock);
	missing = pipe->missing;
	pipe->missing = false;
	pthread_mutex_unlock(&pipe->lock);
	return missing;
}

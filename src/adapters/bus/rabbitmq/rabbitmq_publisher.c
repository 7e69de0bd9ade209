/*
 * A publisher sends letters to the broker. A caller passes a job to the link's thread and waits.
 * That thread writes all letters to the connection and then reads the broker's confirms until it
 * has all of them or the deadline has passed. The fate of a letter:
 *
 *   not written                                NOT_PERSISTED
 *   written, not yet confirmed or refused      UNKNOWN
 *   confirmed (ack)                            CONFIRMED
 *   returned, then confirmed or refused        NOT_PERSISTED
 *   refused (nack)                             UNKNOWN
 *
 * A nack means that the broker takes no responsibility for a letter; a queue may have the letter
 * nevertheless. If the node of a classic queue dies, the other nodes refuse letters that they have
 * passed to that node. The dead node may have written these letters; after it has restarted, they
 * are in the queue. A full queue that rejects new letters refuses them in the same way, so their
 * fate is UNKNOWN too.
 *
 * A confirm contains the delivery tag of its letter. A return contains no tag, but returns arrive
 * in the order of the letters. So a return belongs to the first letter that was written after the
 * previously returned letter and has the same exchange, routing key and id as the return. This rule
 * holds only if no return of an earlier job can still arrive. Therefore the publisher replaces a
 * connection on which a confirm is missing.
 *
 * During an alarm, the broker stops reading from connections that publish, and notifies their
 * clients. The publisher keeps its connection, so that the broker can report the end of the alarm,
 * and publishes nothing until then.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"
#include "base/log.h"

/* How long a caller waits beyond its deadline before it cuts the connection. */
#define GRACE_NS (50 * NS_PER_MS)

#define REPLACE_INTERVAL_NS NS_PER_S

/* After this many consecutive failures a caller no longer waits for the connection. */
#define FAILURES_MAX 2

static struct rabbitmq_publisher *publisher_of(struct rabbitmq_link *link)
{
	return (struct rabbitmq_publisher *)link; /* the publisher's first member is its link */
}

/* All functions up to the section "the caller" run on the link's thread. */

/* ---- confirms and returns ------------------------------------------------------------------ */

/*
 * A refusal may be due to the connection: if the node that led a quorum queue dies, RabbitMQ 3.10
 * refuses every letter for that queue on AMQP channels that were opened before the next leader was
 * elected, and never stops doing so. Therefore a refusal replaces the connection, but at most once
 * per REPLACE_INTERVAL_NS, because a full queue refuses letters too.
 */
static void note_nack(struct rabbitmq_publisher *publisher)
{
	int64_t now_ns = clock_steady_ns(&clock_system);

	if (now_ns < publisher->replace_at_ns)
		return;
	publisher->replace_at_ns = now_ns + REPLACE_INTERVAL_NS;
	publisher->is_stale = true;
}

static void settle(
	struct rabbitmq_publisher *publisher, struct rabbitmq_letter *letter, bool accepted)
{
	if (letter->is_settled)
		return;
	letter->is_settled = true;
	publisher->outstanding--;
	if (!accepted)
		note_nack(publisher);
	if (letter->is_returned)
		letter->fate = BUS_NOT_PERSISTED;
	else if (accepted)
		letter->fate = BUS_CONFIRMED;
}

/* Sets the fates of the letters that a confirm covers. The confirm cannot belong to an earlier job:
 * either all confirms of that job have arrived, or its connection was replaced. */
static void take_confirm(
	struct rabbitmq_publisher *publisher, uint64_t tag, bool multiple, bool accepted)
{
	size_t last = (size_t)(tag - publisher->first_tag);

	if (!publisher->current || tag < publisher->first_tag || last >= publisher->written)
		return;
	for (size_t i = multiple ? publisher->settled : last; i <= last; i++)
		settle(publisher, &publisher->current->letters[i], accepted);
	if (multiple)
		publisher->settled = last + 1;
}

static bool looks_like(const struct rabbitmq_letter *letter, const amqp_basic_return_t *method,
	const amqp_basic_properties_t *properties)
{
	bool has_id = properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG;
	struct slice id = has_id ? rabbitmq_slice(properties->message_id) : slice_make(NULL, 0);

	return slice_equal(rabbitmq_slice(letter->exchange), rabbitmq_slice(method->exchange)) &&
	       slice_equal(
		       rabbitmq_slice(letter->routing_key), rabbitmq_slice(method->routing_key)) &&
	       slice_equal(rabbitmq_slice(letter->properties.message_id), id);
}

/* Handles a return: a queue or binding is missing, so everything must be declared again. */
static void note_return(struct rabbitmq_publisher *publisher, const amqp_basic_return_t *method)
{
	publisher->is_stale |= publisher->queue != NULL;
	rabbitmq_watcher_doubt(publisher->link.bus);
	if (publisher->next_return == 0) /* warn once per job */
		log_line(LOG_WARN, "bus",
			"%s: RabbitMQ returned a message that was published to exchange "
			"\"%.*s\": no queue is bound with routing key \"%.*s\"",
			publisher->link.who, (int)method->exchange.len,
			(const char *)method->exchange.bytes, (int)method->routing_key.len,
			(const char *)method->routing_key.bytes);
}

static void take_return(struct rabbitmq_publisher *publisher, const amqp_basic_return_t *method,
	const amqp_basic_properties_t *properties)
{
	size_t i = publisher->next_return;

	if (!publisher->current)
		return;
	while (i < publisher->written &&
		!looks_like(&publisher->current->letters[i], method, properties))
		i++;
	if (i == publisher->written)
		return;
	note_return(publisher, method);
	publisher->current->letters[i].is_returned = true;
	publisher->next_return = i + 1;
}

/* Reads the returned message, which follows `method`, and handles the return. Returns false if the
 * link is lost. */
static bool read_return(struct rabbitmq_publisher *publisher, const amqp_basic_return_t *method)
{
	struct rabbitmq_link *link = &publisher->link;
	amqp_message_t message;

	if (!rabbitmq_link_check_reply(link,
		    amqp_read_message(link->state, RABBITMQ_AMQP_CHANNEL, &message, 0), "return",
		    ""))
		return false;
	take_return(publisher, method, &message.properties);
	amqp_destroy_message(&message);
	return true;
}

static void set_readiness(struct rabbitmq_publisher *publisher, enum rabbitmq_readiness readiness)
{
	pthread_mutex_lock(&publisher->lock);
	publisher->readiness = readiness;
	pthread_cond_broadcast(&publisher->changed);
	pthread_mutex_unlock(&publisher->lock);
}

static void set_blocked(struct rabbitmq_publisher *publisher, bool is_blocked)
{
	struct rabbitmq_bus *bus = publisher->link.bus;

	if (publisher->is_blocked == is_blocked)
		return;
	publisher->is_blocked = is_blocked;
	atomic_fetch_add(&bus->blocked, is_blocked ? 1 : -1);
	if (is_blocked || !publisher->is_stale)
		set_readiness(publisher, is_blocked ? RABBITMQ_BLOCKED : RABBITMQ_READY);
	log_line(is_blocked ? LOG_WARN : LOG_INFO, "bus", "%s: RabbitMQ %s", publisher->link.who,
		is_blocked ? "accepts no messages, because it is short of memory or disk"
			   : "accepts messages again");
}

/* Handles one frame. Returns false if the link is lost. */
static bool take_frame(struct rabbitmq_publisher *publisher, const amqp_frame_t *frame)
{
	const amqp_method_t *method = &frame->payload.method;
	const amqp_basic_ack_t *ack = method->decoded;
	const amqp_basic_nack_t *nack = method->decoded;

	if (frame->frame_type != AMQP_FRAME_METHOD)
		return true;
	switch (method->id) {
	case AMQP_BASIC_ACK_METHOD:
		take_confirm(publisher, ack->delivery_tag, ack->multiple, true);
		return true;
	case AMQP_BASIC_NACK_METHOD:
		take_confirm(publisher, nack->delivery_tag, nack->multiple, false);
		return true;
	case AMQP_BASIC_RETURN_METHOD:
		return read_return(publisher, method->decoded);
	case AMQP_CONNECTION_BLOCKED_METHOD:
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		set_blocked(publisher, method->id == AMQP_CONNECTION_BLOCKED_METHOD);
		return true;
	default:
		return true;
	}
}

/* ---- a job ------------------------------------------------------------------------------- */

/*
 * Handles all frames that have arrived. While a written letter is neither confirmed nor refused,
 * waits for more frames until monotonic time `until_ns`. Returns false if the link is lost.
 */
static bool take_confirms(struct rabbitmq_publisher *publisher, int64_t until_ns)
{
	enum rabbitmq_event event = RABBITMQ_FRAME;
	amqp_frame_t frame;

	while (event != RABBITMQ_QUIET) {
		event = rabbitmq_link_wait(
			&publisher->link, &frame, publisher->outstanding > 0 ? until_ns : 0);
		if (event == RABBITMQ_GONE ||
			(event == RABBITMQ_FRAME && !take_frame(publisher, &frame)))
			return false;
	}
	return true;
}

static bool write_letter(struct rabbitmq_publisher *publisher, struct rabbitmq_letter *letter)
{
	struct rabbitmq_link *link = &publisher->link;

	letter->fate = BUS_UNKNOWN;
	publisher->written++;
	publisher->outstanding++;
	publisher->next_tag++;
	return rabbitmq_link_check_code(link,
		amqp_basic_publish(link->state, RABBITMQ_AMQP_CHANNEL, letter->exchange,
			letter->routing_key, true, false, &letter->properties, letter->body),
		"publish");
}

/*
 * While the socket is corked, it sends only full segments, so that the broker needs as few reads as
 * possible for the letters of a job. A socket that does not support TCP_CORK sends each letter
 * immediately.
 */
static void cork(struct rabbitmq_publisher *publisher, bool corked)
{
	const int value = corked;

	setsockopt(amqp_get_sockfd(publisher->link.state), IPPROTO_TCP, TCP_CORK, &value,
		sizeof(value));
}

static bool write_letters(struct rabbitmq_publisher *publisher, struct rabbitmq_job *job)
{
	bool works = true;

	for (size_t i = 0; i < job->count && works; i++) {
		if (publisher->is_blocked || clock_steady_ns(&clock_system) >= job->until_ns)
			return true;
		works = write_letter(publisher, &job->letters[i]) && take_confirms(publisher, 0);
	}
	return works;
}

static void finish(struct rabbitmq_publisher *publisher)
{
	pthread_mutex_lock(&publisher->lock);
	if (publisher->job)
		publisher->job->done = true;
	publisher->job = NULL;
	pthread_cond_broadcast(&publisher->changed);
	pthread_mutex_unlock(&publisher->lock);
}

static bool run_job(struct rabbitmq_publisher *publisher, struct rabbitmq_job *job)
{
	bool works;

	publisher->current = job;
	publisher->first_tag = publisher->next_tag;
	publisher->written = publisher->outstanding = publisher->settled = 0;
	publisher->next_return = 0;
	cork(publisher, job->count > 1);
	works = write_letters(publisher, job);
	cork(publisher, false);
	works = works && take_confirms(publisher, job->until_ns);
	publisher->is_stale |= publisher->outstanding > 0;
	publisher->current = NULL;
	if ((publisher->is_stale || !works) && !publisher->is_blocked)
		/* before finish(), so that no other job can start */
		set_readiness(publisher, RABBITMQ_AWAY);
	finish(publisher);
	return works;
}

/* ---- the link ---------------------------------------------------------------------------- */

static bool set_up(struct rabbitmq_link *link)
{
	struct rabbitmq_publisher *publisher = publisher_of(link);

	publisher->next_tag = 1;
	publisher->is_stale = false;
	if (publisher->queue && !rabbitmq_declare_queue(link, publisher->queue))
		return false;
	amqp_confirm_select(link->state, RABBITMQ_AMQP_CHANNEL);
	return rabbitmq_link_check_reply(link, amqp_get_rpc_reply(link->state), "confirms", "");
}

static struct rabbitmq_job *next_job(struct rabbitmq_publisher *publisher)
{
	struct rabbitmq_job *job;

	pthread_mutex_lock(&publisher->lock);
	job = publisher->is_blocked ? NULL : publisher->job;
	pthread_mutex_unlock(&publisher->lock);
	return job;
}

/* Runs one job or handles one frame. Returns false if the link is lost. */
static bool work(struct rabbitmq_publisher *publisher)
{
	struct rabbitmq_job *job = next_job(publisher);
	enum rabbitmq_event event;
	amqp_frame_t frame;

	if (job)
		return run_job(publisher, job);
	event = rabbitmq_link_wait(&publisher->link, &frame, INT64_MAX);
	return event != RABBITMQ_GONE && (event != RABBITMQ_FRAME || take_frame(publisher, &frame));
}

static enum rabbitmq_end serve(struct rabbitmq_link *link)
{
	struct rabbitmq_publisher *publisher = publisher_of(link);
	bool works = true;

	set_readiness(publisher, RABBITMQ_READY);
	while (works && !rabbitmq_link_is_stopped(link) &&
		(!publisher->is_stale || publisher->is_blocked))
		works = work(publisher);
	if (!works)
		/* the AMQP channel may have been closed because an exchange is missing */
		rabbitmq_watcher_doubt(link->bus);
	if (publisher->is_blocked)
		atomic_fetch_sub(&link->bus->blocked, 1);
	publisher->is_blocked = false;
	set_readiness(publisher, RABBITMQ_AWAY);
	finish(publisher);
	if (!works)
		return RABBITMQ_LOST;
	return publisher->is_stale ? RABBITMQ_REPLACED : RABBITMQ_STOPPED;
}

/* Makes a waiting caller check the state of the bus and of the link again. */
static void notify(struct rabbitmq_link *link)
{
	struct rabbitmq_publisher *publisher = publisher_of(link);

	pthread_mutex_lock(&publisher->lock);
	pthread_cond_broadcast(&publisher->changed);
	pthread_mutex_unlock(&publisher->lock);
}

static const struct rabbitmq_duty duty = {.set_up = set_up, .serve = serve, .notify = notify};

/* ---- the caller -------------------------------------------------------------------------- */

/*
 * Waits until the publisher is ready, but at most until `until_ns`, and returns OK in both cases.
 * Returns BUS_UNAVAILABLE if the bus is down or the link keeps failing. The caller holds the lock.
 */
static enum status wait_until_ready(struct rabbitmq_publisher *publisher, int64_t until_ns)
{
	struct rabbitmq_bus *bus = publisher->link.bus;
	bool in_time = true;

	while (publisher->readiness != RABBITMQ_READY && in_time) {
		if (!rabbitmq_bus_is_up(bus) ||
			atomic_load(&publisher->link.failures) >= FAILURES_MAX)
			return STATUS_BUS_UNAVAILABLE;
		in_time = steady_wait_until(&publisher->changed, &publisher->lock, until_ns);
	}
	return rabbitmq_bus_is_up(bus) ? STATUS_OK : STATUS_BUS_UNAVAILABLE;
}

/*
 * Makes the link's thread run the job. If the job is not done shortly after its deadline, cuts the
 * connection, so that the thread soon stops using the letters. The caller holds the lock.
 */
static void run_to_end(struct rabbitmq_publisher *publisher, struct rabbitmq_job *job)
{
	bool has_end = job->until_ns < INT64_MAX - GRACE_NS;
	int64_t late_ns = has_end ? job->until_ns + GRACE_NS : INT64_MAX;

	publisher->job = job;
	rabbitmq_link_wake(&publisher->link);
	while (!job->done && steady_wait_until(&publisher->changed, &publisher->lock, late_ns))
		continue;
	if (!job->done)
		rabbitmq_link_cut(&publisher->link);
	while (!job->done)
		pthread_cond_wait(&publisher->changed, &publisher->lock);
}

enum status rabbitmq_publisher_publish(struct rabbitmq_publisher *publisher,
	struct rabbitmq_letter *letters, size_t count, int64_t until_ns)
{
	struct rabbitmq_job job = {.letters = letters, .count = count, .until_ns = until_ns};
	enum status status;

	pthread_mutex_lock(&publisher->lock);
	status = wait_until_ready(publisher, until_ns);
	if (status == STATUS_OK && publisher->readiness == RABBITMQ_READY &&
		clock_steady_ns(&clock_system) < until_ns)
		run_to_end(publisher, &job);
	pthread_mutex_unlock(&publisher->lock);
	return status;
}

struct rabbitmq_publisher *rabbitmq_publisher_new(struct rabbitmq_bus *bus, const char *queue)
{
	struct rabbitmq_publisher *publisher = qp_calloc(1, sizeof(*publisher));

	publisher->queue = queue;
	pthread_mutex_init(&publisher->lock, NULL);
	steady_cond_init(&publisher->changed);
	rabbitmq_link_start(&publisher->link, bus, &duty, queue ? "errors to " : "producer",
		queue ? queue : "");
	rabbitmq_bus_enter(bus, &publisher->link);
	return publisher;
}

void rabbitmq_publisher_free(struct rabbitmq_publisher *publisher)
{
	rabbitmq_bus_leave(publisher->link.bus, &publisher->link);
	rabbitmq_link_stop(&publisher->link);
	pthread_cond_destroy(&publisher->changed);
	pthread_mutex_destroy(&publisher->lock);
	free(publisher);
}

/*
 * The reader is the link of a consumer. It receives deliveries as they arrive, keeps sending
 * heartbeats while the application handles messages, and sends the acknowledgements that the
 * consumer's thread requests. The list of deliveries is bounded, because the broker stops sending
 * when PREFETCH deliveries are unacknowledged.
 *
 * A delivery can be acknowledged only on the connection on which it arrived. Therefore each
 * delivery carries the serial of its connection. If the connection is lost, an acknowledgement that
 * was requested but not yet sent fails.
 */
#include <stdlib.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"

#define PREFETCH 512

static struct rabbitmq_consumer *consumer_of(struct rabbitmq_link *link)
{
	return (struct rabbitmq_consumer *)((char *)link -
					    offsetof(struct rabbitmq_consumer, link));
}

static bool set_up(struct rabbitmq_link *link)
{
	struct rabbitmq_consumer *consumer = consumer_of(link);

	if (!rabbitmq_declare_group(link, consumer->channel, consumer->queue))
		return false;
	amqp_basic_qos(link->state, RABBITMQ_AMQP_CHANNEL, 0, PREFETCH, false);
	if (!rabbitmq_link_check_reply(link, amqp_get_rpc_reply(link->state), "prefetch", ""))
		return false;
	amqp_basic_consume(link->state, RABBITMQ_AMQP_CHANNEL, amqp_cstring_bytes(consumer->queue),
		amqp_empty_bytes, false, false, false, amqp_empty_table);
	return rabbitmq_link_check_reply(
		link, amqp_get_rpc_reply(link->state), "consuming from ", consumer->queue);
}

/* ---- deliveries -------------------------------------------------------------------------- */

static void append(struct rabbitmq_consumer *consumer, struct rabbitmq_delivery *delivery)
{
	pthread_mutex_lock(&consumer->lock);
	*consumer->last = delivery;
	consumer->last = &delivery->next;
	pthread_cond_broadcast(&consumer->changed);
	pthread_mutex_unlock(&consumer->lock);
}

/* Reads the message that follows `method`, and adds it to the consumer's list. Returns false if the
 * link is lost. */
static bool receive(struct rabbitmq_link *link, const amqp_basic_deliver_t *method)
{
	struct rabbitmq_delivery *delivery = qp_calloc(1, sizeof(*delivery));

	delivery->tag = method->delivery_tag;
	delivery->serial = link->serial;
	delivery->routing_key = amqp_bytes_malloc_dup(method->routing_key);
	if (!rabbitmq_link_check_reply(link,
		    amqp_read_message(link->state, RABBITMQ_AMQP_CHANNEL, &delivery->message, 0),
		    "delivery", "")) {
		amqp_bytes_free(delivery->routing_key);
		free(delivery);
		return false;
	}
	append(consumer_of(link), delivery);
	return true;
}

static bool take_frame(struct rabbitmq_link *link, const amqp_frame_t *frame)
{
	const amqp_method_t *method = &frame->payload.method;

	if (frame->frame_type != AMQP_FRAME_METHOD)
		return true;
	switch (method->id) {
	case AMQP_BASIC_DELIVER_METHOD:
		return receive(link, method->decoded);
	case AMQP_BASIC_CANCEL_METHOD:
		rabbitmq_link_explain(link, "queue %s was deleted", consumer_of(link)->queue);
		return false;
	default:
		return true;
	}
}

/* ---- acknowledgements -------------------------------------------------------------------- */

/* Returns the tag up to which the consumer's thread wants deliveries acknowledged, or 0 if it wants
 * no acknowledgement. */
static uint64_t wanted_ack(struct rabbitmq_consumer *consumer)
{
	uint64_t tag;

	pthread_mutex_lock(&consumer->lock);
	tag = consumer->ack == RABBITMQ_ACK_WANTED ? consumer->ack_tag : 0;
	pthread_mutex_unlock(&consumer->lock);
	return tag;
}

static void end_ack(struct rabbitmq_consumer *consumer, enum rabbitmq_ack ack)
{
	pthread_mutex_lock(&consumer->lock);
	consumer->ack = ack;
	pthread_cond_broadcast(&consumer->changed);
	pthread_mutex_unlock(&consumer->lock);
}

static bool acknowledge(struct rabbitmq_link *link)
{
	struct rabbitmq_consumer *consumer = consumer_of(link);
	uint64_t tag = wanted_ack(consumer);

	if (tag == 0)
		return true;
	if (!rabbitmq_link_check_code(
		    link, amqp_basic_ack(link->state, RABBITMQ_AMQP_CHANNEL, tag, true), "ack"))
		return false;
	end_ack(consumer, RABBITMQ_ACK_SENT);
	return true;
}

/* ---- the link ---------------------------------------------------------------------------- */

/* Sends the acknowledgement that the consumer has requested, if any, and handles one frame. Returns
 * false if the link is lost. */
static bool work(struct rabbitmq_link *link)
{
	enum rabbitmq_event event;
	amqp_frame_t frame;

	if (!acknowledge(link))
		return false;
	event = rabbitmq_link_wait(link, &frame, INT64_MAX);
	return event != RABBITMQ_GONE && (event != RABBITMQ_FRAME || take_frame(link, &frame));
}

/*
 * Sets the serial of the current connection, or 0 if there is no connection. Deliveries of other
 * connections become invalid, and an acknowledgement that was requested but not yet sent fails.
 */
static void set_serial(struct rabbitmq_consumer *consumer, uint64_t serial)
{
	pthread_mutex_lock(&consumer->lock);
	consumer->serial = serial;
	if (consumer->ack == RABBITMQ_ACK_WANTED)
		consumer->ack = RABBITMQ_ACK_FAILED;
	pthread_cond_broadcast(&consumer->changed);
	pthread_mutex_unlock(&consumer->lock);
}

static enum rabbitmq_end serve(struct rabbitmq_link *link)
{
	struct rabbitmq_consumer *consumer = consumer_of(link);
	bool works = true;

	set_serial(consumer, link->serial);
	while (works && !rabbitmq_link_is_stopped(link))
		works = work(link);
	set_serial(consumer, 0);
	return works ? RABBITMQ_STOPPED : RABBITMQ_LOST;
}

const struct rabbitmq_duty rabbitmq_reader = {.set_up = set_up, .serve = serve};

/*
 * Declares exchanges, queues and bindings. Declaring an exchange, queue or binding that already
 * exists changes nothing. If an exchange or queue exists with other properties, the broker closes
 * the AMQP channel and reports the difference.
 */
#include "adapters/bus/rabbitmq/rabbitmq_internal.h"

/* A binding with this key matches every routing key. */
#define ALL "#"

static bool declare_exchange(struct rabbitmq_link *link, const char *name, bool passive)
{
	amqp_exchange_declare(link->state, RABBITMQ_AMQP_CHANNEL, amqp_cstring_bytes(name),
		amqp_cstring_bytes("topic"), passive, true, false, false, amqp_empty_table);
	return rabbitmq_link_check_reply(link, amqp_get_rpc_reply(link->state), "exchange ", name);
}

bool rabbitmq_find_channel(struct rabbitmq_link *link, const struct bus_channel *channel)
{
	return declare_exchange(link, channel->name, true);
}

/* Without the argument x-queue-type, the broker creates a queue of its default kind: classic,
 * unless the vhost has another default. */
bool rabbitmq_declare_queue(struct rabbitmq_link *link, const char *queue)
{
	amqp_table_entry_t quorum = {.key = amqp_cstring_bytes("x-queue-type"),
		.value = {
			.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("quorum")}};
	amqp_table_t arguments = {link->bus->url.has_quorum_queues ? 1 : 0, &quorum};

	amqp_queue_declare(link->state, RABBITMQ_AMQP_CHANNEL, amqp_cstring_bytes(queue), false,
		true, false, false, arguments);
	return rabbitmq_link_check_reply(link, amqp_get_rpc_reply(link->state), "queue ", queue);
}

static bool bind(struct rabbitmq_link *link, const char *queue, const char *exchange,
	struct slice routing_key)
{
	amqp_queue_bind(link->state, RABBITMQ_AMQP_CHANNEL, amqp_cstring_bytes(queue),
		amqp_cstring_bytes(exchange), rabbitmq_bytes(routing_key), amqp_empty_table);
	return rabbitmq_link_check_reply(
		link, amqp_get_rpc_reply(link->state), "binding of queue ", queue);
}

bool rabbitmq_declare_group(
	struct rabbitmq_link *link, const struct bus_channel *channel, const char *group)
{
	const char *subjects = bus_group_subjects(channel, group);
	struct slice rest = slice_of(subjects ? subjects : ALL);
	bool declared = rabbitmq_declare_queue(link, group);

	while (declared && rest.data)
		declared = bind(link, group, channel->name, slice_cut(&rest, ' '));
	return declared;
}

/* A channel without groups gets a queue with the channel's name; otherwise its messages would be
 * lost. */
bool rabbitmq_declare_channel(struct rabbitmq_link *link, const struct bus_channel *channel)
{
	bool declared = declare_exchange(link, channel->name, false);

	if (declared && channel->group_count == 0)
		return rabbitmq_declare_group(link, channel, channel->name);
	for (size_t i = 0; declared && i < channel->group_count; i++)
		declared = rabbitmq_declare_group(link, channel, channel->groups[i].name);
	return declared;
}

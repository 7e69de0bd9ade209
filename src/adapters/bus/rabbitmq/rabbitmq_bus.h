/*
 * RabbitMQ behind ports/bus.h, with rabbitmq-c. A channel is a durable topic exchange, a group a
 * durable queue of its name that is bound to it for the subjects that the group wants ("#" where it
 * wants all). Both are declared whenever the broker has been away, for all groups that are named
 * with the channel, so that nothing is lost before the first consumer comes. A channel without a
 * group has a queue of its own name, where people find what was published. A group's name belongs
 * to one channel.
 *
 * The subject is the routing key (the channel's own name stands for none), the id is message-id, a
 * header content-type is the property of that name, the key travels as header `key`.
 *
 * Each producer has a connection and a thread of its own. Messages are persistent and confirmed by
 * the broker; one that no queue is bound for comes back and is NOT_PERSISTED. A connection on which
 * something was not confirmed in time is replaced, so that nothing late can be mistaken. While the
 * broker takes no messages (its memory or disk alarm) publish() refuses at once and the bus is not
 * up.
 *
 * Each consumer has a connection and a thread that keeps it alive while the application works. What
 * is not acknowledged is given again from memory; when the connection is lost, the broker gives it
 * again, to any member. A poisoned delivery is published to the queue "<group>_error", as
 * MassTransit does it, and confirmed before it is acknowledged. The broker does not count
 * deliveries, so none is ever exhausted.
 */
#ifndef QUIPU_ADAPTERS_BUS_RABBITMQ_RABBITMQ_BUS_H
#define QUIPU_ADAPTERS_BUS_RABBITMQ_RABBITMQ_BUS_H

#include "ports/bus.h"

/*
 * `url` is amqp://[user:password@]host[:port][/vhost][?option=value[&option=value…]], or amqps://
 * for TLS. Options: heartbeat (seconds); and for TLS cacert, cert, key (files) and verify (peer or
 * none). All parts but the port are percent-decoded. Without them: user guest, the port of the
 * scheme, the vhost "/", heartbeats of 10 s, the system's certificates. The user needs the
 * permission to declare what is named above. Everything passed in must live as long as the bus.
 * Messages to channels that are not among `channels` are NOT_PERSISTED; a consumer of one must not
 * be opened.
 */
struct bus *rabbitmq_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

/*
 * RabbitMQ behind ports/bus.h, with rabbitmq-c. A channel is a durable topic exchange. A group is a
 * durable queue of the same name, bound to the exchange for the subjects that the group wants ("#"
 * if it wants all). After each outage the bus declares both again, for all groups declared with the
 * channel, so that no message is lost before the first consumer connects. A channel without groups
 * has a queue of its own name, where people find what was published. A group's name belongs to one
 * channel.
 *
 * The subject is the routing key (the channel's own name if there is no subject), the id is the
 * property message-id, a header content-type is the property of that name, and the key travels as
 * the header `key`.
 *
 * Each producer has its own connection and thread. Messages are persistent, and the broker confirms
 * them. It returns a message for which no queue is bound, which is then NOT_PERSISTED. The producer
 * replaces a connection on which a confirm was late, so that no late confirm can be taken for that
 * of a newer message. While the broker accepts no messages (its memory or disk alarm), publish()
 * refuses immediately and the bus is not up.
 *
 * Each consumer has its own connection, and a thread that keeps it alive while the application
 * works. Unacknowledged messages are delivered again from memory; if the connection is lost, the
 * broker delivers them again to any member. A poisoned message is published to the queue
 * "<group>_error", in the way of MassTransit, and acknowledged once the broker has confirmed that.
 * The broker does not count deliveries, so no delivery is ever exhausted.
 */
#ifndef QUIPU_ADAPTERS_BUS_RABBITMQ_RABBITMQ_BUS_H
#define QUIPU_ADAPTERS_BUS_RABBITMQ_RABBITMQ_BUS_H

#include "ports/bus.h"

/*
 * `url` is amqp://[user:password@]host[:port][/vhost][?option=value[&option=value…]], or amqps://
 * for TLS. The options are heartbeat (seconds), and for TLS cacert, cert, key (files) and verify
 * (peer or none). All parts but the port are percent-decoded. The defaults are the user guest, the
 * port of the scheme, the vhost "/", heartbeats of 10 s, and the system's certificates. The user
 * needs permission to declare the exchanges and queues described above. Everything passed in must
 * live as long as the bus. Messages to channels that are not among `channels` are NOT_PERSISTED,
 * and no consumer may be opened for such a channel.
 */
struct bus *rabbitmq_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

/*
 * Implements ports/bus.h for RabbitMQ, with rabbitmq-c. A channel is a durable topic exchange. A
 * group is a durable queue of the same name, bound to the exchange for the subjects that the group
 * wants ("#" if it wants all). At start and after each outage the bus declares the exchange of each
 * channel and the queues of all groups in `channels`, so that no message is lost before the first
 * consumer connects. A channel without groups gets a queue with the channel's name, which keeps the
 * published messages. Two channels must not have groups with the same name.
 *
 * A message's subject becomes the routing key; without a subject, the routing key is the channel's
 * name. The id becomes the property message-id, a header named content-type becomes the property
 * content-type, and the key becomes the header `key`.
 *
 * Each producer has its own connection and thread. Messages are persistent, and the broker confirms
 * them. If no queue is bound for a message, the broker returns the message, and its fate is
 * NOT_PERSISTED. If the broker refuses a message (a nack), because the queue is full or the queue's
 * node died, the fate is UNKNOWN: the queue may have the message nevertheless. If a confirm is
 * late, the producer replaces the connection, so that it never mistakes the late confirm for the
 * confirm of a newer message. While the broker accepts no messages (because of a memory or disk
 * alarm), the bus is not up and publish() refuses immediately.
 *
 * Each consumer has its own connection, and a thread that keeps the connection alive while the
 * application works. A consumer delivers unacknowledged messages again from its memory; if its
 * connection is lost, the broker delivers them again to any member of the group. As in MassTransit,
 * a copy of a poisoned message is published to the queue "<group>_error"; the message itself is
 * acknowledged once the broker has confirmed the copy. The bus does not count deliveries, so it
 * never marks a delivery as exhausted.
 */
#ifndef QUIPU_ADAPTERS_BUS_RABBITMQ_RABBITMQ_BUS_H
#define QUIPU_ADAPTERS_BUS_RABBITMQ_RABBITMQ_BUS_H

#include "ports/bus.h"

/*
 * `url` is
 * amqp://[user:password@]host[:port][,host[:port]…][/vhost][?option=value[&option=value…]], or
 * amqps:// for TLS. Several hosts are the nodes of one cluster; if the bus cannot reach a node, it
 * tries the next node. The option heartbeat is a number of seconds. With queues=quorum, the bus
 * declares quorum queues; with queues=classic, the default, it declares queues without a type, so
 * that the broker chooses the type. The options for TLS are cacert, cert and key (files), and
 * verify (peer or none). All parts except the port are percent-decoded. The defaults are the user
 * guest, the scheme's standard port, the vhost "/", heartbeats of 10 s, and the system's
 * certificates. The user needs permission to declare every exchange, queue and binding that the bus
 * uses. All arguments must live as long as the bus. Messages to channels that are not among
 * `channels` are NOT_PERSISTED, and no consumer may be opened for such a channel.
 */
struct bus *rabbitmq_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

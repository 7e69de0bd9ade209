/*
 * Kafka behind ports/bus.h, with librdkafka. A channel is a topic, which the bus creates with the
 * given number of partitions if it is missing. The subject travels as the header `subject`, the id
 * as `event-id`.
 *
 * Each producer has its own idempotent client, which waits for all in-sync replicas. At the
 * deadline of a publish the producer removes unsettled messages from the client's queue, so that a
 * message reported as NOT_PERSISTED is never sent later. If one of them may have been sent, it
 * replaces the client, because the broker's message numbers and the client's may then disagree. A
 * watcher with its own client knows whether the cluster responds; while it does not, publish()
 * refuses without queueing.
 *
 * Each consumer is a member of its group. Commits are synchronous and cover only partitions that
 * the consumer still owns. When a rebalance takes a partition away, the consumer drops its
 * deliveries, and acknowledging them has no effect: the new owner gets them.
 */
#ifndef QUIPU_ADAPTERS_BUS_KAFKA_KAFKA_BUS_H
#define QUIPU_ADAPTERS_BUS_KAFKA_KAFKA_BUS_H

#include "ports/bus.h"

/*
 * `url` is kafka://host:port[,host:port…][?option=value[&option=value…]]. The options are those of
 * librdkafka that say how to connect (security.protocol, sasl.…, ssl.…, socket.…, client.id and so
 * on); values are percent-decoded. No option can weaken what the port promises. Everything passed
 * in must live as long as the bus. Messages to channels that are not among `channels` are
 * NOT_PERSISTED, and no consumer may be opened for such a channel.
 */
struct bus *kafka_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

/*
 * Kafka behind ports/bus.h, with librdkafka. A channel is a topic, made with the given number of
 * partitions where it is missing; the subject travels as header `subject`, the id as `event-id`.
 *
 * Each producer has a client of its own, idempotent, that waits for all in-sync replicas. Whatever
 * is not settled at the deadline of a publish is taken out of its queue, so that what is reported
 * as NOT_PERSISTED is never sent later; the client is then replaced, since the broker would refuse
 * the gap in its numbering. A watcher with a client of its own knows whether the cluster answers:
 * while it does not, publish() refuses without queueing.
 *
 * Each consumer is a member of its group. Commits are synchronous and cover only partitions that
 * are still its own; deliveries of partitions that a rebalance took away are forgotten, and
 * acknowledging them does nothing: the partition's new owner gets them.
 */
#ifndef QUIPU_ADAPTERS_BUS_KAFKA_KAFKA_BUS_H
#define QUIPU_ADAPTERS_BUS_KAFKA_KAFKA_BUS_H

#include "ports/bus.h"

/*
 * `url` is kafka://host:port[,host:port…][?option=value[&option=value…]]. Options are librdkafka's
 * for how to connect (security.protocol, sasl.…, ssl.…, socket.…, and client.id); values are
 * percent-decoded. What the port promises cannot be configured away. Everything passed in must live
 * as long as the bus. Messages to channels that are not among `channels` are NOT_PERSISTED; a
 * consumer of one must not be opened.
 */
struct bus *kafka_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

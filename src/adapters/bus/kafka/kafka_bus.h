/*
 * Implements ports/bus.h for Kafka, with librdkafka. A channel is a topic. If a topic does not
 * exist, the bus creates it with as many partitions as the channel declares. The subject of a
 * message travels as the header `subject`, its id as the header `event-id`.
 *
 * Each producer has its own idempotent client, which waits for all in-sync replicas. At the
 * deadline of a publish, the producer removes from the client's queue all messages that have no
 * delivery report, so that a message reported as NOT_PERSISTED is never sent later. If one of these
 * messages may have been sent, the producer replaces the client, because the broker and the client
 * may then disagree about sequence numbers. A watcher with its own client checks whether the
 * cluster responds. While the cluster does not respond, publish() refuses messages without queueing
 * them.
 *
 * Each consumer is a member of its group. Commits are synchronous and cover only partitions that
 * the consumer still owns. When a consumer loses a partition in a rebalance, it drops the
 * deliveries of that partition. Acknowledging these deliveries has no effect: the new owner of the
 * partition gets the messages. If Kafka loses the end of a partition's log, the consumer detects
 * the loss and reads the log again, starting one day before the last message that it had read
 * (kafka_places.c).
 */
#ifndef QUIPU_ADAPTERS_BUS_KAFKA_KAFKA_BUS_H
#define QUIPU_ADAPTERS_BUS_KAFKA_KAFKA_BUS_H

#include "ports/bus.h"

/*
 * `url` is kafka://host:port[,host:port…][?option=value[&option=value…]]. The options are
 * librdkafka's options for connecting (security.protocol, sasl.…, ssl.…, socket.…, client.id and so
 * on) and for staying a member of a group (session.timeout.ms, heartbeat.interval.ms,
 * max.poll.interval.ms). Values are percent-decoded. No option can weaken the guarantees of the
 * port. All arguments must live as long as the bus. A message to a channel that is not among
 * `channels` gets the fate NOT_PERSISTED, and no consumer may be opened for such a channel.
 */
struct bus *kafka_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

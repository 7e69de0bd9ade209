/*
 * Implements ports/bus.h for NATS JetStream, with cnats. A channel is a stream. The bus creates
 * missing streams; such a stream is stored in files and keeps messages for seven days and their ids
 * for ten minutes. A group is a durable pull consumer of the stream, shared by all members of the
 * group. The id of a message travels as the header Nats-Msg-Id, its key as the header `key`, and
 * its subject as the NATS subject; a message without a subject uses the channel's name. The order
 * of headers is kept only among headers with the same name.
 *
 * A confirmed message is in the stream, but with nats-server's defaults it may not be on disk yet:
 * it survives a crash of the server process, but may be lost if the machine crashes. If a message
 * is published again with the same id within ten minutes, the server confirms the message, but does
 * not store it again.
 *
 * Nothing is buffered while the server is unreachable. When a connection ends, messages that were
 * sent but not confirmed are UNKNOWN, and messages that were not sent are NOT_PERSISTED. The bus
 * never sends these messages again by itself.
 *
 * If a consumer returns a message, the server delivers it again after 1 s; this delay doubles with
 * each delivery of the message, up to 60 s. If a message was neither acknowledged nor returned, the
 * server delivers it again after the URL's `ack-wait`. The last delivery that the URL's
 * `max-deliver` allows is marked as exhausted. If that delivery is lost, the server sends an
 * advisory, and a consumer of the group reads the message from the stream. The advisory is not
 * durable: if it is lost, the message is not delivered again.
 */
#ifndef QUIPU_ADAPTERS_BUS_NATS_NATS_BUS_H
#define QUIPU_ADAPTERS_BUS_NATS_NATS_BUS_H

#include "ports/bus.h"

/*
 * `url` is nats://[user:password@]host[:port][,host[:port]…][?option=value[&option=value…]], or
 * tls://…; a token is written as :token@. User, password and values are percent-decoded.
 *
 *   ack-wait=30s      how long a consumer may hold a message, 100ms to 1h
 *   max-deliver=20    maximum number of deliveries of a message, 2 to 10000
 *   replicas=1        replicas of a stream that the bus creates, 1 to 5
 *   creds=FILE        the file with the user's JWT and seed
 *   tls-ca=FILE       the certificates to trust instead of the system's
 *   tls-cert=FILE, tls-key=FILE   the client's certificate and private key
 *
 * ack-wait and max-deliver apply only to durables that the bus creates; existing durables stay
 * unchanged. In an existing stream, the bus changes only the maximum age, the window for duplicate
 * ids, and the subjects: it adds missing subjects and removes subjects that an added subject
 * covers.
 *
 * All arguments must live as long as the bus. Messages to channels that are not among `channels`,
 * or with a subject that the channel does not have, are NOT_PERSISTED. No consumer may be opened
 * for a channel that is not among `channels`. A group's name consists of letters, digits,
 * - and _.
 */
struct bus *nats_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

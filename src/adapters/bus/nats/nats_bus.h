/*
 * NATS JetStream behind ports/bus.h, with cnats. A channel is a stream, which the bus creates if it
 * is missing (in files, keeping messages for seven days and ids for ten minutes). A group is a
 * durable pull consumer of the stream, shared by all members. The id travels as Nats-Msg-Id, the
 * key as the header `key`, the subject as the NATS subject; a message without a subject uses the
 * channel's name. Only headers of the same name keep their order.
 *
 * A confirmed message is in the stream, but with nats-server's defaults not yet on disk: it
 * survives a crash of the server, but not of the machine. The server confirms an id that it gets
 * again within ten minutes, but stores the message only once.
 *
 * Nothing is buffered while the server is unreachable. When a connection ends, messages that were
 * sent and not confirmed are UNKNOWN, those not sent are NOT_PERSISTED, and neither are sent later.
 *
 * The server delivers a returned message again after 1 s, 2 s, 4 s, … 60 s, and one that is neither
 * acknowledged nor returned after `ack-wait`. Its last delivery is marked as exhausted. If that one
 * gets lost too, the server sends an advisory, which is itself not durable, and the consumer reads
 * the message from the stream once more.
 */
#ifndef QUIPU_ADAPTERS_BUS_NATS_NATS_BUS_H
#define QUIPU_ADAPTERS_BUS_NATS_NATS_BUS_H

#include "ports/bus.h"

/*
 * `url` is nats://[user:password@]host[:port][,host[:port]…][?option=value[&option=value…]], or
 * tls://…; a token is written as :token@. User, password and values are percent-decoded.
 *
 *   ack-wait=30s      how long a consumer may hold a message, 100ms to 1h
 *   max-deliver=20    how often a message is delivered, 2 to 10000
 *   replicas=1        replicas of a stream that the bus creates, 1 to 5
 *   creds=FILE        a user's JWT and seed
 *   tls-ca=FILE       the certificates to trust instead of the system's
 *   tls-cert=FILE, tls-key=FILE   the client's certificate and private key
 *
 * ack-wait and max-deliver apply to durables that the bus creates; it uses an existing one as it
 * is. Of an existing stream it changes only the maximum age, the window for duplicate ids, and
 * subjects that are missing.
 *
 * Everything passed in must live as long as the bus. Messages to channels that are not among
 * `channels`, or with a subject that is not one of the channel's, are NOT_PERSISTED; no consumer
 * may be opened for such a channel. A group's name consists of letters, digits, - and _.
 */
struct bus *nats_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

/*
 * NATS JetStream behind ports/bus.h, with cnats. A channel is a stream, made where it is missing
 * (on files, kept seven days, ids remembered for ten minutes); a group is a durable pull consumer
 * of it, shared by all members. The id travels as Nats-Msg-Id, the key as header `key`, the subject
 * as the subject; a message without a subject has the channel's name. Headers keep their order only
 * among those of one name.
 *
 * A confirmed message is in the stream, but with nats-server's defaults not yet on the disk: it
 * outlives the server's crash and not the machine's. The same id sent again within ten minutes is
 * confirmed and not stored twice.
 *
 * Nothing is buffered while the server is away: what has not been answered when a connection ends
 * is UNKNOWN, what had not been sent is NOT_PERSISTED, and neither is ever sent later.
 *
 * A message that is given back comes again after 1 s, 2 s, 4 s, … 60 s, one that is neither
 * acknowledged nor given back after `ack-wait`. The last time that the server would give it, it
 * comes marked as exhausted; what is lost even then is reported by the server (an advisory, which
 * is itself not durable) and read from the stream once more.
 */
#ifndef QUIPU_ADAPTERS_BUS_NATS_NATS_BUS_H
#define QUIPU_ADAPTERS_BUS_NATS_NATS_BUS_H

#include "ports/bus.h"

/*
 * `url` is nats://[user:password@]host[:port][,host[:port]…][?option=value[&option=value…]], or
 * tls://…; a token is written as :token@. User, password and values are percent-decoded.
 *
 *   ack-wait=30s      how long a message may be in hand, 100ms to 1h
 *   max-deliver=20    how often it is given, 2 to 10000
 *   replicas=1        of a stream that is made, 1 to 5
 *   creds=FILE        a user's JWT and seed
 *   tls-ca=FILE       whom to trust; without it, whom the system trusts
 *   tls-cert=FILE, tls-key=FILE   who we are
 *
 * ack-wait and max-deliver are for durables that are made; one that exists is used as it is. Of a
 * stream that exists, only its age, its memory of ids, and subjects that it lacks are changed.
 *
 * Everything passed in must live as long as the bus. Messages to channels that are not among
 * `channels`, or with a subject that is not one of the channel's, are NOT_PERSISTED; a consumer of
 * one must not be opened. The name of a group has letters, digits, - and _ only.
 */
struct bus *nats_bus_new(const char *name, const char *url, const struct bus_channel *channels,
	size_t channel_count);

#endif

/*
 * The bus of a single process: a durable queue in an SQLite file of its own, behind ports/bus.h.
 *
 * A published message is in the file, synced, before publish() returns; whoever publishes or
 * acknowledges at the same moment shares one transaction and one fsync. A message stays until every
 * group of its channel has acknowledged it, for seven days in a channel that has no group. Repeated
 * ids are not dropped: consumers dedupe (rule 6 of the design).
 *
 * Messages of one key keep their order, also where several consumers share a group: what has the
 * key of a message that another consumer has in hand is held back until that one is acknowledged or
 * given back. Positions are "channel/0/offset"; offsets grow, with gaps.
 *
 * The file is locked: a second process that opens it gets a clear error. A disk that fails makes
 * publish() refuse and fetch() wait, until it works again; one that hangs is waited for, past any
 * deadline, because a transaction cannot be taken back while it is being written.
 */
#ifndef QUIPU_ADAPTERS_BUS_LOCAL_LOCAL_BUS_H
#define QUIPU_ADAPTERS_BUS_LOCAL_LOCAL_BUS_H

#include "ports/bus.h"

/*
 * `path` is the file, made by start() if it is missing; its folder must be there. Everything passed
 * in must live as long as the bus. Messages to channels that are not among `channels` are
 * NOT_PERSISTED; a consumer of one must not be opened.
 */
struct bus *local_bus_new(const char *name, const char *path, const struct bus_channel *channels,
	size_t channel_count);

#endif

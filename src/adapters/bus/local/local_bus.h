/*
 * Implements ports/bus.h for a single process, as a durable queue in an SQLite file of its own.
 *
 * A published message is written to the file and synced before publish() returns. Threads that
 * publish or acknowledge at the same moment share one transaction and one fsync. A message stays in
 * the file until every group of its channel has acknowledged it; in a channel without groups it
 * stays for seven days. The bus does not drop messages with repeated ids: consumers must recognise
 * repeats.
 *
 * Messages with the same key keep their order, even if several consumers share a group: until a
 * consumer has acknowledged or returned a message, the other consumers get no messages with the
 * same key. The position of a message is "channel/0/offset"; offsets grow, with gaps.
 *
 * The process locks the file, so a second process that tries to open the file gets a clear error.
 * While the disk fails, publish() refuses messages and fetch() waits until the disk works again. If
 * the disk hangs, calls wait for it past any deadline, because a transaction cannot be undone while
 * it is being written.
 */
#ifndef QUIPU_ADAPTERS_BUS_LOCAL_LOCAL_BUS_H
#define QUIPU_ADAPTERS_BUS_LOCAL_LOCAL_BUS_H

#include "ports/bus.h"

/*
 * `path` names the file. start() creates it if it is missing; its folder must exist. All arguments
 * must live as long as the bus. A message to a channel that is not among `channels` gets the fate
 * NOT_PERSISTED, and no consumer may be opened for such a channel.
 */
struct bus *local_bus_new(const char *name, const char *path, const struct bus_channel *channels,
	size_t channel_count);

/*
 * Counts the undelivered messages in the file of a bus. No process may be using the bus. A message
 * counts once for each group that wants it and has not acknowledged it. Messages of channels
 * without groups count too, except for dead letters (*.dlq). The file does not say which subjects a
 * group wants, so `channels` must include every channel with a group that wants only some subjects.
 * On failure returns false and writes the reason to `why`. Blocks.
 */
QP_MUST_CHECK bool local_bus_waiting(const char *path, const struct bus_channel *channels,
	size_t channel_count, int64_t *waiting, char *why, size_t size);

#endif

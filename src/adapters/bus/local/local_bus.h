/*
 * The bus of a single process: a durable queue in an SQLite file of its own, behind ports/bus.h.
 *
 * A published message is written to the file and synced before publish() returns. Threads that
 * publish or acknowledge at the same moment share one transaction and one fsync. A message stays
 * until every group of its channel has acknowledged it; in a channel without groups it stays for
 * seven days. The bus does not drop messages with repeated ids: consumers must recognise them.
 *
 * Messages with the same key keep their order, even if several consumers share a group: while one
 * consumer holds a message, the others get no messages with the same key until that message is
 * acknowledged or returned. Positions are "channel/0/offset"; offsets grow, with gaps.
 *
 * The file is locked, so a second process that opens it gets a clear error. While the disk fails,
 * publish() refuses and fetch() waits until the disk works again. If the disk hangs, calls wait for
 * it past any deadline, because a transaction cannot be undone while it is being written.
 */
#ifndef QUIPU_ADAPTERS_BUS_LOCAL_LOCAL_BUS_H
#define QUIPU_ADAPTERS_BUS_LOCAL_LOCAL_BUS_H

#include "ports/bus.h"

/*
 * `path` names the file. start() creates it if it is missing; its folder must exist. All arguments
 * must live as long as the bus. Messages to channels that are not among `channels` are
 * NOT_PERSISTED, and no consumer may be opened for such a channel.
 */
struct bus *local_bus_new(const char *name, const char *path, const struct bus_channel *channels,
	size_t channel_count);

/*
 * Counts the undelivered messages in the file of a bus that no process is using. Counts a message
 * once for each group that wants it and has not acknowledged it. Also counts the messages of
 * channels without groups, except for dead letters (*.dlq). `channels` must contain the channels
 * whose groups want only some subjects. On failure returns false with a sentence in `why`. Blocks.
 */
QP_MUST_CHECK bool local_bus_waiting(const char *path, const struct bus_channel *channels,
	size_t channel_count, int64_t *waiting, char *why, size_t size);

#endif

/*
 * Declarations shared by the files of this adapter.
 *
 *   file       the SQLite file: opening, checkpoints, reopening after an error
 *   work       combines the work of several threads on the file into one transaction
 *   messages   the SQL: messages, groups, positions, retention
 *   group      the messages that were read ahead for a group, and which consumer holds which of
 *              these messages
 *   consumer   the port's functions for consumers
 *   waiting    counts the undelivered messages of a bus that no process is using
 *   bus        the port's other functions
 *
 * A single connection reads and writes, so no statement ever finds the file busy. The connection
 * belongs to the leader, the thread that currently does the work of all threads (local_work.c). A
 * round of work is all the work that a leader takes from the queue at once. bus->lock guards the
 * queue of work, the groups and the other shared members, and is never held during I/O. Functions
 * that return int return a result code of SQLite.
 */
#ifndef QUIPU_ADAPTERS_BUS_LOCAL_LOCAL_INTERNAL_H
#define QUIPU_ADAPTERS_BUS_LOCAL_LOCAL_INTERNAL_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "adapters/bus/local/local_bus.h"
#include "adapters/shared/sqlite_connection.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/steady.h"

/* ---- the file: used only by the leader, or by the thread that starts or frees the bus ------- */

struct local_file {
	const char *path;
	struct sqlite_connection connection;
	/* an error has left the file's state unknown, so it must be reopened before the next use */
	bool in_doubt;
	int wal_frames; /* frames in the write-ahead log after the last commit */
};

/*
 * Opens the file, locks it for this process, and copies the contents of the write-ahead log into
 * the database. `flags` is 0 or SQLITE_OPEN_CREATE. On failure the file stays closed.
 */
QP_MUST_CHECK int local_file_open(struct local_file *file, int flags);

/* Does nothing if the file is not open. */
void local_file_close(struct local_file *file);

/* Prepares the file for its next use. If the file is closed, opens it; if an error has left the
 * file's state unknown, reopens it. Runs a checkpoint if one is due. */
QP_MUST_CHECK int local_file_prepare(struct local_file *file);

/* Rolls back the transaction, if one is open. Sets `in_doubt` if the error `rc` leaves the file's
 * state unknown or if the rollback fails. */
void local_file_undo(struct local_file *file, int rc);

/* ---- the bus ----------------------------------------------------------------------------- */

struct local_work;
struct local_group;

struct local_channel {
	const char *name;
	const struct bus_channel *declared;
	int64_t id; /* the channel's id in the file */
	/* guarded by the bus's lock; increases when a fetch may find more messages */
	uint64_t changes;
	pthread_cond_t changed; /* signalled when `changes` increases or a consumer is woken */
	/* counts acknowledged and skipped messages, to decide when to call local_messages_trim();
	 * changed only by the leader */
	_Atomic size_t acked_since_trim;
};

struct local_bus {
	struct bus base;
	struct local_file file;
	const struct bus_channel *declared; /* as passed to local_bus_new() */
	struct local_channel *channels;     /* one for each declared channel, in the same order */
	size_t channel_count;
	/* when to look for expired messages again; used only by the leader */
	int64_t next_expiry_ns;
	struct arena scratch; /* used only by the leader; reset after each round of work */

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t worked;
	struct local_work *queue_first;
	struct local_work **queue_last;
	bool led; /* a leader is using the file */
	struct local_group *groups;
	size_t users; /* open producers and consumers */

	_Atomic bool started;
	_Atomic int64_t failed_at_ns; /* monotonic time of the last failure; 0 if the file works */
};

/* Casts, and aborts if `base` is not a local bus. */
struct local_bus *local_bus_of(struct bus *base);

/* Returns NULL if the channel was not declared. */
struct local_channel *local_bus_channel(struct local_bus *bus, struct slice name);

/* Makes waiting fetches of the channel try again. The caller holds the lock. */
void local_channel_changed(struct local_channel *channel);

/* ---- work -------------------------------------------------------------------------------- */

enum local_outcome {
	LOCAL_DONE,
	LOCAL_FAILED,  /* nothing was written */
	LOCAL_UNKNOWN, /* COMMIT failed: the work may or may not be in the file */
	LOCAL_TOO_LATE /* the deadline passed before a leader took the work */
};

/* A piece of work on the file. Embed it as the first member of a struct with the details. */
struct local_work {
	/* true if the work writes; such work runs in the leader's transaction. Other work runs
	 * before that transaction and must only read. */
	bool writes;

	/*
	 * Does the work. The leader calls this without the lock. If the result is not SQLITE_OK, no
	 * write of the same round of work is committed.
	 */
	int (*run)(struct local_bus *bus, struct local_work *work);

	/* Called by the leader with the lock held, once the outcome is known. May be NULL. */
	void (*settle)(struct local_bus *bus, struct local_work *work, enum local_outcome outcome);

	enum local_outcome outcome;
	/* a leader has taken the work; the thread that queued it must now wait for the outcome */
	bool taken;
	bool done;
	struct local_work *next;
};

/*
 * Does the work, together with the work of other threads, and blocks until its outcome is known.
 * The caller must not hold the lock. Returns LOCAL_TOO_LATE if no leader has taken the work by
 * monotonic time `until_ns`.
 */
enum local_outcome local_work_do(struct local_bus *bus, struct local_work *work, int64_t until_ns);

/* ---- messages: used only by the leader, or by the thread that starts or frees the bus ------- */

/* Creates the tables and a row for each channel. On failure returns false and writes the reason to
 * `why`. */
QP_MUST_CHECK bool local_messages_prepare(struct local_bus *bus, char *why, size_t size);

/* Adds a message. Requires a transaction. */
QP_MUST_CHECK int local_messages_add(struct local_bus *bus, const struct local_channel *channel,
	const struct bus_message *message);

/*
 * Reads the message at `offset` into `delivery`; its bytes are allocated from `arena`. Returns
 * SQLITE_DONE if the message is no longer in the file.
 */
QP_MUST_CHECK int local_messages_read(
	struct local_bus *bus, int64_t offset, struct arena *arena, struct bus_delivery *delivery);

/*
 * Reads up to `limit` messages after `group->head`. Appends to the group's window the messages that
 * the group wants, and skips the others. Sets `*found` to the number of messages read.
 */
QP_MUST_CHECK int local_messages_scan(
	struct local_bus *bus, struct local_group *group, size_t limit, size_t *found);

/*
 * Loads the group's row. If the row is missing, creates it with a position before the oldest
 * message. Requires a transaction.
 */
QP_MUST_CHECK int local_messages_join(struct local_bus *bus, struct local_group *group);

/* Records that the group has acknowledged everything up to `position`. Requires a transaction. */
QP_MUST_CHECK int local_messages_move(
	struct local_bus *bus, const struct local_group *group, int64_t position);

/* Records that the group has acknowledged the message at `offset`, which is after the group's
 * position. Requires a transaction. */
QP_MUST_CHECK int local_messages_mark(
	struct local_bus *bus, const struct local_group *group, int64_t offset);

#define LOCAL_TRIM_CHUNK 1024

/*
 * Deletes up to LOCAL_TRIM_CHUNK messages that every group of the channel has acknowledged, and
 * sets `*deleted` to their number. Runs in the current transaction, or in its own if there is none.
 */
QP_MUST_CHECK int local_messages_trim(
	struct local_bus *bus, const struct local_channel *channel, int *deleted);

/* Deletes up to LOCAL_TRIM_CHUNK expired messages in each channel without groups, and sets
 * `*deleted` to their number. Runs in the current transaction; if there is none, the deletion in
 * each channel is a transaction of its own. */
QP_MUST_CHECK int local_messages_expire(struct local_bus *bus, int *deleted);

/* ---- groups ------------------------------------------------------------------------------ */

/* How many messages a group's window can hold. */
#define LOCAL_WINDOW_MAX 8192

/* How many slots a group has. The hash of a message's key selects the message's slot. */
#define LOCAL_SLOTS 256

/* How many unwanted messages a group skips before it records its new position in the file. */
#define LOCAL_SKIP_MAX 256

struct local_consumer;

enum local_state { LOCAL_FREE, LOCAL_TAKEN, LOCAL_ACKED };

/*
 * A message in a group's window.
 *
 *   state   event                                      next    function
 *   –       read ahead                                 FREE    local_group_append
 *   FREE    a fetch takes it for its consumer          TAKEN   local_group_take
 *   TAKEN   an ack has committed                       ACKED   local_group_acknowledge
 *   TAKEN   the fetch finds that the row is deleted    ACKED   local_group_acknowledge
 *   TAKEN   the fetch ends without having read the row FREE    local_group_give_back
 *   TAKEN   again(), the next fetch, or close          FREE    local_group_give_back
 *   ACKED   everything before it is acknowledged too   –       local_group_shrink
 */
struct local_entry {
	int64_t offset;
	/* the slot that the hash of the message's key selects; LOCAL_SLOTS if the message has no
	 * key and hence no order to keep */
	uint16_t slot;
	uint8_t state;
};

struct local_group {
	struct local_channel *channel;
	char *name;
	const char *subjects; /* the subjects that the group wants; NULL means all */
	size_t members;
	struct local_group *next;

	int64_t id; /* the group's id in the file; 0 until the group has joined */
	/* the offset up to which every message is skipped, acknowledged or in the window */
	int64_t head;
	size_t skipped; /* how many skipped messages the file does not record yet */

	/* The window: a ring of the messages after the group's position, in order of offset. */
	struct local_entry *entries;
	size_t first;
	size_t count;

	/* For each slot: which consumer holds messages of that slot, and how many. */
	struct {
		const struct local_consumer *holder;
		size_t count;
	} slots[LOCAL_SLOTS];
};

/* The caller of the functions below holds the lock, unless noted otherwise. */

/* Adds a member to the group with that name, after creating the group if needed. Returns the
 * group. */
struct local_group *local_group_enter(
	struct local_bus *bus, struct local_channel *channel, const char *name);

/* Removes a member. Frees the group if this was the last member. */
void local_group_leave(struct local_bus *bus, struct local_group *group);

/*
 * Called by the leader without the lock. Reads ahead until `consumer` can take `wanted` messages,
 * the window is full, or the channel has no more messages.
 */
QP_MUST_CHECK int local_group_read_ahead(struct local_bus *bus, struct local_group *group,
	const struct local_consumer *consumer, size_t wanted);

/* Adds a message at the end of the window, which must not be full. */
void local_group_append(struct local_group *group, int64_t offset, struct slice key);

/* Skips the next message, which the group does not want. */
void local_group_skip(struct local_group *group, int64_t offset);

/* Returns how many more messages the window can hold. */
size_t local_group_room(const struct local_group *group);

/* Returns how many messages the consumer could take now, at most `wanted`. */
size_t local_group_takeable(
	const struct local_group *group, const struct local_consumer *consumer, size_t wanted);

/* Takes up to `max` messages for the consumer, in order. Writes their offsets to `offsets` and
 * returns their number. */
size_t local_group_take(struct local_group *group, const struct local_consumer *consumer,
	int64_t *offsets, size_t max);

/* local_group_give_back() marks the TAKEN message at `offset` as FREE, and
 * local_group_acknowledge() marks it as ACKED. */
void local_group_give_back(struct local_group *group, int64_t offset);
void local_group_acknowledge(struct local_group *group, int64_t offset);

/*
 * Returns the position that the group will have once the offsets `done` (ascending) are
 * acknowledged: every message up to that position will be acknowledged or skipped.
 */
int64_t local_group_position(const struct local_group *group, const int64_t *done, size_t count);

/* Removes acknowledged messages from the beginning of the window. */
void local_group_shrink(struct local_group *group);

/* ---- consumers --------------------------------------------------------------------------- */

/* Opens a consumer of a declared channel. The caller must not hold the lock. */
struct consumer *local_consumer_open(struct bus *base, const char *channel, const char *group);

#endif

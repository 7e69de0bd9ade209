/*
 * What the files of this adapter share.
 *
 *   file       the SQLite connection: opening, statements, checkpoints, opening anew after an error
 *   work       what threads want done with the file, combined into one transaction by whoever leads
 *   messages   the SQL: messages, groups, positions, retention
 *   group      what a group has read ahead, who has which message in hand
 *   bus        the port's functions but those of consumers; consumer: those
 *
 * One connection reads and writes, so nothing is ever busy. It belongs to the thread that leads
 * (local_work.c). Everything else is guarded by bus->lock, which is never held during I/O.
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

/* ---- the file: only the leader uses it, or the thread that starts or frees the bus ------- */

struct local_file {
	const char *path;
	struct sqlite_connection connection;
	bool in_doubt;  /* after an I/O error: must be opened anew before the next use */
	int wal_frames; /* frames in the write-ahead log after the last commit */
};

/*
 * Opens the file, locks it for this process, and copies what is left in the write-ahead log into
 * the database. `flags` may be SQLITE_OPEN_CREATE. On failure the file stays closed.
 */
QP_MUST_CHECK int local_file_open(struct local_file *file, int flags);

/* Does nothing if the file is not open. */
void local_file_close(struct local_file *file);

/* Call before each use: opens the file anew if it is in doubt, and checkpoints if one is due. */
QP_MUST_CHECK int local_file_prepare(struct local_file *file);

/* Rolls back an open transaction, and notes whether `rc` leaves the file in doubt. */
void local_file_undo(struct local_file *file, int rc);

/* ---- the bus ----------------------------------------------------------------------------- */

struct local_work;
struct local_group;

struct local_channel {
	const char *name;
	const struct bus_channel *declared;
	int64_t id;              /* in the file */
	uint64_t changes;        /* under lock: grows whenever a fetch may find more than before */
	pthread_cond_t changed;  /* with it, and when a consumer is woken */
	size_t acked_since_trim; /* by the leader */
};

struct local_bus {
	struct bus base;
	struct local_file file;
	const struct bus_channel *declared; /* as passed to local_bus_new() */
	struct local_channel *channels;     /* one for each declared channel, in that order */
	size_t channel_count;
	int64_t next_expiry_ns; /* by the leader: when to look for expired messages again */
	struct arena scratch;   /* by the leader, for one round */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t worked;
	struct local_work *queue_first;
	struct local_work **queue_last;
	bool led; /* a thread has the file */
	struct local_group *groups;
	size_t users; /* producers and consumers that are open */

	_Atomic bool started;
	_Atomic int64_t failed_at_ns; /* steady time, 0: it works */
};

/* Checked downcast. */
struct local_bus *local_bus_of(struct bus *base);

/* NULL: not one of those the program has named. */
struct local_channel *local_bus_channel(struct local_bus *bus, struct slice name);

/* With the lock: lets fetches of the channel look again. */
void local_channel_changed(struct local_channel *channel);

/* ---- work -------------------------------------------------------------------------------- */

enum local_outcome {
	LOCAL_DONE,
	LOCAL_FAILED,  /* nothing of it is in the file */
	LOCAL_UNKNOWN, /* COMMIT failed: it may be */
	LOCAL_TOO_LATE /* it was not begun before its deadline */
};

/* Embedded as the first member of what is to be done. */
struct local_work {
	bool writes; /* runs inside the transaction; else before it, outside of any */

	/* By the leader, without the lock. Not SQLITE_OK: none of the round's writes are done. */
	int (*run)(struct local_bus *bus, struct local_work *work);

	/* By the leader, with the lock, when the outcome is known. May be NULL. */
	void (*settle)(struct local_bus *bus, struct local_work *work, enum local_outcome outcome);

	enum local_outcome outcome;
	bool taken; /* by a leader: it can no longer leave the queue */
	bool done;
	struct local_work *next;
};

/* Has it done, together with what other threads want done. Without the lock. */
enum local_outcome local_work_do(struct local_bus *bus, struct local_work *work, int64_t until_ns);

/* ---- messages: SQL, by the leader -------------------------------------------------------- */

/* Tables, and a row for each channel. false: `why`. */
QP_MUST_CHECK bool local_messages_prepare(struct local_bus *bus, char *why, size_t size);

/* In a transaction. */
QP_MUST_CHECK int local_messages_add(struct local_bus *bus, const struct local_channel *channel,
	const struct bus_message *message);

/* A message by its offset, into `delivery` and `arena`. SQLITE_DONE: it is not there any more. */
QP_MUST_CHECK int local_messages_read(
	struct local_bus *bus, int64_t offset, struct arena *arena, struct bus_delivery *delivery);

/* Looks at `found` more messages behind the group's head: into its window, or passed over. */
QP_MUST_CHECK int local_messages_scan(
	struct local_bus *bus, struct local_group *group, size_t limit, size_t *found);

/* In a transaction: the group's row, made if it is missing, at the oldest message. */
QP_MUST_CHECK int local_messages_join(struct local_bus *bus, struct local_group *group);

/* In a transaction: records that the group has acknowledged all up to `position`. */
QP_MUST_CHECK int local_messages_move(
	struct local_bus *bus, const struct local_group *group, int64_t position);

/* In a transaction: records one acknowledged message behind the group's position. */
QP_MUST_CHECK int local_messages_mark(
	struct local_bus *bus, const struct local_group *group, int64_t offset);

/* In a transaction: deletes one chunk of what every group of the channel has acknowledged. */
#define LOCAL_TRIM_CHUNK 1024
QP_MUST_CHECK int local_messages_trim(
	struct local_bus *bus, const struct local_channel *channel, int *deleted);

/* In a transaction: deletes one chunk of what is too old in channels without a group. */
QP_MUST_CHECK int local_messages_expire(struct local_bus *bus, int *deleted);

/* ---- groups ------------------------------------------------------------------------------ */

/* So many messages can be in hand, or acknowledged behind one that is not, at a time. */
#define LOCAL_WINDOW_MAX 8192
#define LOCAL_SLOTS 256

/* Messages of no interest that a group passes over before it notes in the file that it has. */
#define LOCAL_PASS_MAX 256

struct local_consumer;

enum local_state { LOCAL_FREE, LOCAL_TAKEN, LOCAL_ACKED };

/*
 *   state   event                                      next
 *   –       read ahead                                 FREE
 *   FREE    a fetch takes it                           TAKEN, by that consumer
 *   TAKEN   ack, committed                             ACKED
 *   TAKEN   again, the next fetch, close               FREE
 *   ACKED   everything before it is acknowledged too   – (the position moves past it)
 */
struct local_entry {
	int64_t offset;
	uint16_t slot; /* hash of its key; LOCAL_SLOTS: it has none, order does not matter */
	uint8_t state;
};

struct local_group {
	struct local_channel *channel;
	char *name;
	const char *subjects; /* that it wants; NULL: all */
	size_t members;
	struct local_group *next;

	int64_t id;    /* in the file; 0: not joined yet */
	int64_t head;  /* everything up to here is passed over, acknowledged or in the window */
	size_t passed; /* so many were passed over and the file does not know */

	/* The window: a ring of the messages behind the position, by offset. */
	struct local_entry *entries;
	size_t first;
	size_t count;

	/* Who has messages of this hash in hand, and how many. */
	struct {
		const struct local_consumer *holder;
		size_t count;
	} slots[LOCAL_SLOTS];
};

/* With the lock: the group of that name, new if there is none; one member more. */
struct local_group *local_group_enter(
	struct local_bus *bus, struct local_channel *channel, const char *name);
/* One member less; the last one frees it. */
void local_group_leave(struct local_bus *bus, struct local_group *group);

/* By the leader: reads ahead until `consumer` can take `wanted` messages, or there are no more. */
QP_MUST_CHECK int local_group_read_ahead(struct local_bus *bus, struct local_group *group,
	const struct local_consumer *consumer, size_t wanted);

/* With the lock: the window grows by a message behind all others. */
void local_group_append(struct local_group *group, int64_t offset, struct slice key);
/* With the lock: the next message is none that the group wants. */
void local_group_pass(struct local_group *group, int64_t offset);
size_t local_group_room(const struct local_group *group);

/* With the lock. */
size_t local_group_takeable(
	const struct local_group *group, const struct local_consumer *consumer, size_t wanted);
size_t local_group_take(struct local_group *group, const struct local_consumer *consumer,
	int64_t *offsets, size_t max);
void local_group_give_back(struct local_group *group, int64_t offset);
void local_group_acknowledge(struct local_group *group, int64_t offset);

/* With the lock: where the position may move to once these offsets, ascending, are done too. */
int64_t local_group_position(const struct local_group *group, const int64_t *done, size_t count);

/* With the lock: forgets what is acknowledged at the window's beginning. */
void local_group_shrink(struct local_group *group);

/* ---- consumers --------------------------------------------------------------------------- */

struct consumer *local_consumer_open(struct bus *base, const char *channel, const char *group);

#endif

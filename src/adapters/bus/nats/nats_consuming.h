/* Declarations shared by the files of this adapter that implement consumers; see
 * nats_internal.h. */
#ifndef QUIPU_ADAPTERS_BUS_NATS_NATS_CONSUMING_H
#define QUIPU_ADAPTERS_BUS_NATS_NATS_CONSUMING_H

#include "adapters/bus/nats/nats_internal.h"

/* ---- pipes ------------------------------------------------------------------------------- */

struct nats_arrival {
	natsMsg *message;
	int64_t arrived_ns;
};

/*
 * A pipe contains the messages that the server has sent to one consumer. A thread of cnats fills
 * the pipe, and the consumer's thread empties it. The pipe lives as long as the consumer and is
 * open while the consumer has a link.
 */
struct nats_pipe {
	/* The members up to the lock are used only by the consumer's thread. */
	struct nats_link *link; /* NULL while the pipe is closed */
	natsSubscription *messages;
	char inbox[NATS_INBOX_SIZE];

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t changed;
	_Atomic bool woken; /* written with the lock held */
	bool running;       /* cnats may still call the handler */

	struct nats_arrival *arrivals;
	size_t arrival_size;
	size_t arrival_count;

	/* The current request for messages. There is never more than one. */
	uint64_t request;      /* the request's number */
	size_t wanted;         /* messages that may still arrive; 0 if the request is over */
	size_t brought;        /* messages that have arrived since the request was sent */
	int64_t expires_ns;    /* when the request is over, even if the server reports nothing */
	int64_t not_before_ns; /* when the next request may be sent */
	bool missing;          /* perhaps the durable no longer exists on the server */
};

void nats_pipe_init(struct nats_pipe *pipe);

/* The pipe must be closed and empty. */
void nats_pipe_destroy(struct nats_pipe *pipe);

/* Subscribes on the link, which the caller must hold until nats_pipe_close(). Returns false if the
 * link is broken. */
QP_MUST_CHECK bool nats_pipe_open(struct nats_pipe *pipe, struct nats_link *link);

/*
 * Closes the pipe. If the link is not broken, waits up to a second until all messages that the
 * server has already sent are in the pipe. In any case, blocks until cnats no longer calls the
 * handler. Does nothing if the pipe is closed.
 */
void nats_pipe_close(struct nats_pipe *pipe);

/* Requests up to `max` messages from the server. Does nothing while the previous request is still
 * open, or before the next request is due. */
void nats_pipe_request(struct nats_pipe *pipe, const char *stream, const char *durable, size_t max);

/*
 * Waits until all messages of the current request have arrived, or until a short time has passed
 * since the first of these messages arrived. Also returns when the next request is due, when the
 * pipe is woken, when the link breaks, when `missing` is set, and at monotonic time `until_ns`.
 */
void nats_pipe_wait(struct nats_pipe *pipe, int64_t until_ns);

/* Waits until monotonic time `until_ns` or until the pipe is woken. Arriving messages do not end
 * the wait. */
void nats_pipe_nap(struct nats_pipe *pipe, int64_t until_ns);

/*
 * nats_pipe_wake() ends the current wait, and every later wait until nats_pipe_calm() is called.
 * Any thread; never blocks.
 */
void nats_pipe_wake(struct nats_pipe *pipe);
void nats_pipe_calm(struct nats_pipe *pipe);

/* Moves up to `max` arrivals from the pipe to `arrivals`, oldest first, and returns their number.
 * The caller destroys their messages. */
size_t nats_pipe_take(struct nats_pipe *pipe, struct nats_arrival *arrivals, size_t max);

/* Sets the pipe's `missing` to false and returns the previous value. True means that the durable
 * perhaps no longer exists on the server. */
bool nats_pipe_take_missing(struct nats_pipe *pipe);

/* ---- durables ---------------------------------------------------------------------------- */

/* The durable consumer that the server keeps for a group, here called a durable. All members of the
 * group share the durable. */
struct nats_durable {
	const char *stream;
	const char *name;
	const char *subject; /* the single subject that the group wants; NULL means all */
	int64_t ack_wait_ns;
	int64_t max_deliver; /* 0 or less means no limit */
};

/*
 * Creates the durable on the server if it does not exist, and reads its settings into `durable`. If
 * that is not possible now, returns false and writes the reason to `why`. See
 * nats_mailbox_request() for `hurry`.
 */
QP_MUST_CHECK bool nats_durable_ensure(struct nats_durable *durable, struct nats_bus *bus,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, char *why, size_t size);

/* What the watcher uses to compare the durables of a channel with its stream. */
struct nats_comparing {
	struct nats_bus *bus;
	struct nats_channel *channel;
	struct nats_mailbox *mailbox;
	char *why; /* a request that fails writes the reason here */
	size_t why_size;
};

/*
 * Sets `*sequence` to the sequence of the last message that the durable has delivered, or to 0 if
 * the durable does not exist or the user lacks the permission for the request. If the request fails
 * for another reason, returns false. Called only by the watcher.
 */
QP_MUST_CHECK bool nats_durable_delivered(const struct nats_durable *durable,
	const struct nats_comparing *comparing, int64_t *sequence);

/*
 * Deletes a durable that has delivered messages which the server has lost with the end of the
 * stream. The server reuses the sequences of the lost messages, and the old durable would never
 * deliver the messages that get these sequences. A new durable delivers the whole stream, and
 * consumers recognise the messages that they have handled. Returns true on success, and also if the
 * durable does not exist or the user lacks the permission for the request. If the request fails for
 * another reason, returns false. Called only by the watcher.
 */
QP_MUST_CHECK bool nats_durable_restart(
	const struct nats_durable *durable, const struct nats_comparing *comparing);

/*
 * Subscribes to the server's reports of messages that it has given up, i.e. no longer delivers,
 * because it has delivered them too often. The server sends each report to one member of the group.
 * Returns NULL if the link is broken.
 */
QP_MUST_CHECK natsSubscription *nats_durable_listen(
	const struct nats_durable *durable, struct nats_link *link);

/* Returns the sequence of the message in the next report, or 0 if there is no report. Never
 * blocks. */
uint64_t nats_durable_given_up(natsSubscription *reports);

enum nats_found { NATS_FOUND, NATS_GONE, NATS_NOT_NOW };

/*
 * Reads a message from the stream. Blocks for one round trip; see nats_mailbox_request() for
 * `hurry`. Sets `*time_us` to when the message was published. The caller destroys the message.
 * Returns GONE if the stream no longer has the message, and NOT_NOW if reading is not possible now.
 */
QP_MUST_CHECK enum nats_found nats_durable_read(const struct nats_durable *durable,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, uint64_t sequence,
	natsMsg **message, int64_t *time_us);

/*
 * Decodes `stored`, the member "message" of the server's reply to $JS.API.STREAM.MSG.GET. Returns
 * false if `stored` is NULL or not readable. The caller destroys the message.
 */
QP_MUST_CHECK bool nats_stored_read(const json_t *stored, natsMsg **message, int64_t *time_us);

/* ---- hands ------------------------------------------------------------------------------- */

struct nats_held {
	natsMsg *message;
	uint64_t sequence; /* the message's number in the stream */
	/* how often the server has delivered the message; if `given_up`, how often this consumer
	 * has read the message from the stream */
	uint64_t deliveries;
	int64_t arrived_ns;
	int64_t time_us; /* when the message was published */
	/* the server no longer delivers the message, and the consumer has read it from the stream;
	 * the message needs no ack */
	bool given_up;
	bool poison;
	bool returned; /* again() has returned the message */
};

/* A message that the server no longer delivers. The consumer will read it from the stream. */
struct nats_late {
	uint64_t sequence;
	uint64_t deliveries;
	int64_t due_ns;
};

/* The messages that a consumer holds. Used by one thread. If all members are 0, the hand is
 * empty. */
struct nats_hand {
	struct nats_held *held; /* in order of arrival */
	size_t size;
	size_t count;
	size_t given; /* how many held messages the last fetch returned */
	size_t acked; /* how many messages of the last fetch are acknowledged */

	struct nats_late *late;
	size_t late_size;
	size_t late_count;
};

/* Drops acknowledged and returned messages. Also drops messages that the server has not given up
 * and that the consumer has held for the ack-wait or longer, because the server delivers them
 * again. */
void nats_hand_forget(struct nats_hand *hand, const struct nats_durable *durable);

/* Moves messages from the pipe into the hand, until the hand has `max` messages or the pipe is
 * empty. */
void nats_hand_take(struct nats_hand *hand, const struct nats_durable *durable,
	struct nats_pipe *pipe, size_t max);

/*
 * Reads from the stream the messages that the server has given up, and adds them to the hand. Stops
 * when the hand has `max` messages. Blocks for one round trip per message; see
 * nats_mailbox_request() for `hurry`.
 */
void nats_hand_read_given_up(struct nats_hand *hand, const struct nats_durable *durable,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, natsSubscription *reports,
	size_t max);

/* Schedules a message that the server has given up: it will be read from the stream at monotonic
 * time `due_ns`. */
void nats_hand_read_later(
	struct nats_hand *hand, uint64_t sequence, uint64_t deliveries, int64_t due_ns);

void nats_hand_release(struct nats_hand *hand);

#endif

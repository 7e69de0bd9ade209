/* What the files of this adapter share that have to do with consumers; see nats_internal.h. */
#ifndef QUIPU_ADAPTERS_BUS_NATS_NATS_CONSUMING_H
#define QUIPU_ADAPTERS_BUS_NATS_NATS_CONSUMING_H

#include "adapters/bus/nats/nats_internal.h"

/* ---- pipes ------------------------------------------------------------------------------- */

struct nats_arrival {
	natsMsg *message;
	int64_t arrived_ns;
};

/*
 * Filled by a thread of the library, emptied by the consumer's. Lives as long as the consumer; open
 * while there is a link.
 */
struct nats_pipe {
	struct nats_link *link; /* NULL: closed. The consumer's, like the next two */
	natsSubscription *messages;
	char inbox[NATS_INBOX_SIZE];

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	_Atomic bool woken; /* written with the lock */
	bool running;       /* the handler may still run */

	struct nats_arrival *arrivals;
	size_t arrival_size;
	size_t arrival_count;

	/* The one request that is under way. */
	uint64_t request;      /* its number */
	size_t wanted;         /* messages it may still bring; 0: it is over */
	size_t brought;        /* messages it has brought */
	int64_t expires_ns;    /* it is over then, whatever was heard */
	int64_t not_before_ns; /* of the next */
	bool missing;          /* the server does not know the consumer */
};

void nats_pipe_init(struct nats_pipe *pipe);
void nats_pipe_destroy(struct nats_pipe *pipe); /* closed, and without arrivals */

QP_MUST_CHECK bool nats_pipe_open(struct nats_pipe *pipe, struct nats_link *link);

/* What is on its way to us still arrives, if the link is not broken. No handler runs after. */
void nats_pipe_close(struct nats_pipe *pipe); /* also when it is closed */

/* Asks for up to `max` messages, unless a request is under way. */
void nats_pipe_request(struct nats_pipe *pipe, const char *stream, const char *durable, size_t max);

/* Until there is something to do: messages, and the end of the request that brought them; a request
 * that is due; woken; the link broken; the consumer missing. At the latest `until_ns`. */
void nats_pipe_wait(struct nats_pipe *pipe, int64_t until_ns);

/* Until it is woken, whatever comes; at the latest `until_ns`. */
void nats_pipe_nap(struct nats_pipe *pipe, int64_t until_ns);

/* Any thread. Those that wait now return, and those that begin to, until it is calmed. */
void nats_pipe_wake(struct nats_pipe *pipe);
void nats_pipe_calm(struct nats_pipe *pipe);

/* Moves arrivals out, oldest first; the caller destroys them. */
size_t nats_pipe_take(struct nats_pipe *pipe, struct nats_arrival *arrivals, size_t max);

/* Whether the consumer was missing when it was last asked for messages. */
bool nats_pipe_take_missing(struct nats_pipe *pipe);

/* ---- durables ---------------------------------------------------------------------------- */

/* The server's side of a consumer. */
struct nats_durable {
	const char *stream;
	const char *name;
	const char *subject; /* the one that the group wants; NULL: all */
	int64_t ack_wait_ns;
	int64_t max_deliver; /* 0 or less: no limit */
};

/* Makes it where it is missing, and tells what it is like. false: not now, `why`. */
QP_MUST_CHECK bool nats_durable_ensure(struct nats_durable *durable, struct nats_bus *bus,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, char *why, size_t size);

/* A subscription to the server's reports of messages that it has given up; each comes to one member
 * of the group. NULL: the link is broken. */
QP_MUST_CHECK natsSubscription *nats_durable_listen(
	const struct nats_durable *durable, struct nats_link *link);

/* The sequence in the next report, without waiting. 0: there is none. */
uint64_t nats_durable_given_up(natsSubscription *reports);

enum nats_found { NATS_FOUND, NATS_GONE, NATS_NOT_NOW };

/* Reads a message from the stream; the caller destroys it. */
QP_MUST_CHECK enum nats_found nats_durable_read(const struct nats_durable *durable,
	struct nats_link *link, uint64_t sequence, natsMsg **message);

/* ---- hands ------------------------------------------------------------------------------- */

struct nats_held {
	natsMsg *message;
	uint64_t sequence;   /* in the stream */
	uint64_t deliveries; /* so often it was given by the server, or, given up, by us */
	int64_t arrived_ns;
	bool given_up; /* read from the stream: the server does not wait for it */
	bool poison;
	bool returned; /* given back */
};

/* To be read from the stream. */
struct nats_late {
	uint64_t sequence;
	uint64_t deliveries;
	int64_t due_ns;
};

/* What a consumer has in hand. Of one thread. Zeroed: empty. */
struct nats_hand {
	struct nats_held *held; /* in the order in which they came */
	size_t size;
	size_t count;
	size_t given; /* so many of them by the last fetch */
	size_t acked; /* so many of those are acknowledged */

	struct nats_late *late;
	size_t late_size;
	size_t late_count;
};

/* Drops what was settled, and what the server gives again itself. */
void nats_hand_forget(struct nats_hand *hand, const struct nats_durable *durable);

/* Moves what has arrived into it, until it has `max`. */
void nats_hand_take(struct nats_hand *hand, const struct nats_durable *durable,
	struct nats_pipe *pipe, size_t max);

/* Reads what the server has given up, until it has `max`. Blocks for a round trip each. */
void nats_hand_read_given_up(struct nats_hand *hand, const struct nats_durable *durable,
	struct nats_link *link, natsSubscription *reports, size_t max);

/* Something given up that could not be used is to be read again at `due_ns`. */
void nats_hand_read_later(
	struct nats_hand *hand, uint64_t sequence, uint64_t deliveries, int64_t due_ns);

void nats_hand_release(struct nats_hand *hand);

#endif

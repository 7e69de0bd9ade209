/*
 * What the files of this adapter share. The types and codes of amqp.h go no further than this
 * folder.
 *
 *   url         what the user wrote
 *   socket      the way to the broker, plain or TLS
 *   link        a connection and the thread that owns it; other threads may only wake, cut or end
 * it topology    exchanges, queues and bindings watcher     the link that knows whether the broker
 * answers, and declares letter      messages as AMQP has them, to and fro publisher   a link that
 * publishes letters and learns the fate of each; of a producer, or for what a consumer puts aside
 *   reader      the link of a consumer: receives deliveries, acknowledges them
 *   producer, consumer, bus: the port's functions
 */
#ifndef QUIPU_ADAPTERS_BUS_RABBITMQ_RABBITMQ_INTERNAL_H
#define QUIPU_ADAPTERS_BUS_RABBITMQ_RABBITMQ_INTERNAL_H

#include <amqp.h>
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "adapters/bus/rabbitmq/rabbitmq_bus.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/steady.h"

/* ---- url --------------------------------------------------------------------------------- */

struct rabbitmq_url {
	bool tls;
	const char *user;
	const char *password; /* a secret */
	const char *host;
	int port;
	const char *vhost;
	int heartbeat_s;
	const char *cacert;
	const char *cert; /* NULL, like the key: none */
	const char *key;
	bool verify;
};

/* false: `why` says what is wrong with it, without any value. The strings are in `arena`. */
QP_MUST_CHECK bool rabbitmq_url_parse(
	const char *text, struct arena *arena, struct rabbitmq_url *url, char *why, size_t size);

/* ---- socket ------------------------------------------------------------------------------ */

/* The connection's socket, not yet connected; it belongs to `state`. NULL: `why`. */
QP_MUST_CHECK amqp_socket_t *rabbitmq_socket_new(
	amqp_connection_state_t state, const struct rabbitmq_url *url, char *why, size_t size);

/* Whether the files that the URL names can be used. false: `why`. */
QP_MUST_CHECK bool rabbitmq_socket_check(const struct rabbitmq_url *url, char *why, size_t size);

/* ---- links ------------------------------------------------------------------------------- */

/* The only channel that a link opens. */
#define RABBITMQ_CHANNEL 1
#define RABBITMQ_WORDS_SIZE 320

struct rabbitmq_bus;
struct rabbitmq_link;

enum rabbitmq_event {
	RABBITMQ_FRAME,
	RABBITMQ_WOKEN,
	RABBITMQ_QUIET, /* the time has come */
	RABBITMQ_GONE,  /* the connection is of no use any more; link->words says why */
};

/* How a link was served to its end. */
enum rabbitmq_end {
	RABBITMQ_STOPPED,  /* it is to be closed in order */
	RABBITMQ_REPLACED, /* it is to be dropped, and connected again at once */
	RABBITMQ_LOST,
};

/* What a link's thread does with it. */
struct rabbitmq_duty {
	/* After each login: declares, subscribes. false: link->words. */
	bool (*set_up)(struct rabbitmq_link *link);

	/* Until the link is lost, or rabbitmq_link_is_stopped(). */
	enum rabbitmq_end (*serve)(struct rabbitmq_link *link);

	/* Something has changed that others may wait for. May be NULL. */
	void (*tell)(struct rabbitmq_link *link);

	bool is_watcher; /* it connects whether the bus is up or not */
};

/*
 *   state        event                                    next
 *   waiting      the bus is up, the pause is over         connecting
 *   connecting   login and set_up() have succeeded        served
 *   connecting   anything fails                           waiting, with a growing pause
 *   served       serve() returns REPLACED or LOST         waiting, mostly without a pause
 *   any          rabbitmq_link_stop()                     ended
 */
struct rabbitmq_link {
	struct rabbitmq_bus *bus;
	const struct rabbitmq_duty *duty;
	char who[160]; /* for logs and the broker's list of connections */
	pthread_t thread;
	int wake_fd;
	struct rabbitmq_link *next; /* in bus->links */

	/* The thread's own. */
	amqp_connection_state_t state; /* NULL: not connected */
	uint64_t serial;               /* random, another one for each connection */
	char words[RABBITMQ_WORDS_SIZE];
	char told[RABBITMQ_WORDS_SIZE]; /* those that were logged last */

	_Atomic int failures; /* in a row */
	_Atomic bool stopped;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t ended;
	int cut_fd; /* another descriptor of the socket; -1: none */
	bool is_served;
	bool has_ended;
};

/* Starts the thread. `role` and `name` say what the link is for: "consumer of ", "queue". */
void rabbitmq_link_start(struct rabbitmq_link *link, struct rabbitmq_bus *bus,
	const struct rabbitmq_duty *duty, const char *role, const char *name);

/* Ends the thread, within seconds, and releases the link. Not by its own thread. */
void rabbitmq_link_stop(struct rabbitmq_link *link);

/* Any thread. What waits in rabbitmq_link_wait(), or the next time, returns. Never blocks. */
void rabbitmq_link_wake(struct rabbitmq_link *link);

/* Any thread: whatever the thread does with the connection fails at once. Never blocks. */
void rabbitmq_link_cut(struct rabbitmq_link *link);

bool rabbitmq_link_is_stopped(struct rabbitmq_link *link);

/* ---- connections; by the link's thread ----------------------------------------------------- */

/* As far as the duty's set_up(). false: link->words, and there is still something to disconnect. */
QP_MUST_CHECK bool rabbitmq_link_connect(struct rabbitmq_link *link);
void rabbitmq_link_disconnect(struct rabbitmq_link *link, bool in_order);

/* For so long, or until it is woken; without a connection. */
void rabbitmq_link_pause(struct rabbitmq_link *link, int ms);

/*
 * Keeps the heartbeats going; what is in `frame` is valid until the next call. The closing of the
 * channel or the connection comes as GONE.
 */
enum rabbitmq_event rabbitmq_link_wait(
	struct rabbitmq_link *link, amqp_frame_t *frame, int64_t until_ns);

/* Whether a request succeeded; else link->words begin with `what`. */
QP_MUST_CHECK bool rabbitmq_link_agreed(
	struct rabbitmq_link *link, amqp_rpc_reply_t reply, const char *what, const char *name);

/* The same for functions that return a code of the library. */
QP_MUST_CHECK bool rabbitmq_link_went(struct rabbitmq_link *link, int code, const char *what);

void rabbitmq_link_say(struct rabbitmq_link *link, const char *format, ...) QP_PRINTF(2, 3);

/* ---- the bus ----------------------------------------------------------------------------- */

struct rabbitmq_bus {
	struct bus base;
	const char *url_text;
	const struct bus_channel *channels;
	size_t channel_count;
	struct arena arena; /* what the url says */
	struct rabbitmq_url url;

	struct rabbitmq_link watch;
	bool running;

	_Atomic bool up;       /* the broker answers, and everything is declared */
	_Atomic bool doubted;  /* something that was declared may be gone */
	_Atomic int blocked;   /* publishers that the broker takes nothing from */
	_Atomic int frame_max; /* bytes, as the broker has it */

	pthread_mutex_t lock; /* guards what follows; never held while something waits */
	struct rabbitmq_link *links;
};

/* Checked downcast. */
struct rabbitmq_bus *rabbitmq_bus_of(struct bus *base);

/* NULL: not one the program has named. */
const struct bus_channel *rabbitmq_bus_channel(const struct rabbitmq_bus *bus, struct slice name);

/* Any thread. Whether messages can be sent. */
bool rabbitmq_bus_is_up(struct rabbitmq_bus *bus);

/* Links that are told when the bus comes up or goes down. */
void rabbitmq_bus_enter(struct rabbitmq_bus *bus, struct rabbitmq_link *link);
void rabbitmq_bus_leave(struct rabbitmq_bus *bus, struct rabbitmq_link *link);
void rabbitmq_bus_wake_links(struct rabbitmq_bus *bus);

/* ---- watcher ----------------------------------------------------------------------------- */

void rabbitmq_watcher_start(struct rabbitmq_bus *bus);
void rabbitmq_watcher_stop(struct rabbitmq_bus *bus);

/* Any thread: what was declared may be gone; it is declared again with the next probe. */
void rabbitmq_watcher_doubt(struct rabbitmq_bus *bus);

/* ---- topology; by the link's thread. false: link->words ------------------------------------ */

/* The exchange of a channel, and a queue for each of its groups. */
QP_MUST_CHECK bool rabbitmq_declare_channel(
	struct rabbitmq_link *link, const struct bus_channel *channel);

/* The queue of a group, bound to the exchange of its channel, which exists. */
QP_MUST_CHECK bool rabbitmq_declare_group(
	struct rabbitmq_link *link, const struct bus_channel *channel, const char *group);

QP_MUST_CHECK bool rabbitmq_declare_queue(struct rabbitmq_link *link, const char *queue);

/* Whether the exchange of a channel is still there. */
QP_MUST_CHECK bool rabbitmq_find_channel(
	struct rabbitmq_link *link, const struct bus_channel *channel);

/* ---- letters ----------------------------------------------------------------------------- */

static inline amqp_bytes_t rabbitmq_bytes(struct slice bytes)
{
	return (amqp_bytes_t){.len = bytes.len, .bytes = (void *)(uintptr_t)bytes.data};
}

static inline struct slice rabbitmq_slice(amqp_bytes_t bytes)
{
	return slice_make(bytes.bytes, bytes.len);
}

/* Something to be published. What it points to belongs to somebody else. */
struct rabbitmq_letter {
	amqp_bytes_t exchange;
	amqp_bytes_t routing_key;
	amqp_basic_properties_t properties;
	amqp_bytes_t body;
	bool is_shared; /* more than one queue is meant to get it */
	size_t index;   /* the caller's */

	enum bus_fate fate; /* out */
	bool is_returned;   /* the publisher's, as the next: no queue is bound for it */
	bool is_settled;    /* the broker has answered */
};

/* Something that came. */
struct rabbitmq_delivery {
	amqp_message_t message;
	amqp_bytes_t routing_key; /* owned */
	uint64_t tag;
	uint64_t serial; /* of the connection on which it came */
	const char *why; /* NULL: it is not poisoned */
	struct rabbitmq_delivery *next;
};

void rabbitmq_delivery_free(struct rabbitmq_delivery *delivery);

/* false: it cannot be sent as AMQP. */
QP_MUST_CHECK bool rabbitmq_letter_write(struct rabbitmq_letter *letter, struct arena *arena,
	const struct rabbitmq_bus *bus, const struct bus_message *message);

/* A copy of a poisoned delivery for the queue `queue`, with MassTransit's headers. */
void rabbitmq_letter_bury(struct rabbitmq_letter *letter, struct arena *arena,
	const struct rabbitmq_bus *bus, const struct rabbitmq_delivery *from, const char *queue);

void rabbitmq_delivery_read(struct bus_delivery *delivery, struct arena *arena,
	const struct bus_channel *channel, const struct rabbitmq_delivery *from);

/* ---- publishers -------------------------------------------------------------------------- */

struct rabbitmq_job {
	struct rabbitmq_letter *letters;
	size_t count;
	int64_t until_ns;
	bool done;
};

enum rabbitmq_readiness { RABBITMQ_AWAY, RABBITMQ_READY, RABBITMQ_BLOCKED };

struct rabbitmq_publisher {
	struct rabbitmq_link link;
	const char *queue; /* to be declared whenever it connects; NULL: none */

	/* The thread's own: what it is at. */
	struct rabbitmq_job *current; /* NULL: nothing */
	uint64_t first_tag;           /* the broker's number of the job's first letter */
	size_t written;               /* so many letters of it */
	size_t outstanding;           /* so many of those without an answer */
	size_t settled;               /* so many, from the first, with one */
	size_t next_return;           /* letters before this one have come back, or will not */
	uint64_t next_tag;
	bool is_blocked;
	bool is_stale; /* an answer, or a queue, is missing: to be replaced */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	enum rabbitmq_readiness readiness;
	struct rabbitmq_job *job; /* NULL: nothing to do */
};

/* `queue` must live as long as the publisher. NULL: none is to be declared. */
struct rabbitmq_publisher *rabbitmq_publisher_new(struct rabbitmq_bus *bus, const char *queue);
void rabbitmq_publisher_free(struct rabbitmq_publisher *publisher);

/*
 * By one thread at a time: as publish() of the port, for letters whose fate is NOT_PERSISTED.
 * Nothing of them is used after it has returned.
 */
QP_MUST_CHECK enum status rabbitmq_publisher_publish(struct rabbitmq_publisher *publisher,
	struct rabbitmq_letter *letters, size_t count, int64_t until_ns);

/* ---- producers and consumers ------------------------------------------------------------- */

struct producer *rabbitmq_producer_open(struct bus *base);
struct consumer *rabbitmq_consumer_open(struct bus *base, const char *channel, const char *group);

enum rabbitmq_ack {
	RABBITMQ_ACK_NONE,
	RABBITMQ_ACK_WANTED,
	RABBITMQ_ACK_SENT,
	RABBITMQ_ACK_FAILED
};

/*
 * Deliveries are in a list, in the order in which they came: first those that the last fetch has
 * given, of these first those that are acknowledged; then those that wait.
 */
struct rabbitmq_consumer {
	struct consumer base;
	struct rabbitmq_link link; /* its thread is the reader */
	const struct bus_channel *channel;
	char *queue;

	/* The consumer's thread's own. */
	struct arena arena; /* the deliveries of the last fetch, and letters made of them */
	size_t given;       /* so many of the list by the last fetch */
	size_t acked;       /* so many of those are acknowledged */
	char *error_queue;
	struct rabbitmq_publisher *burier; /* NULL: nothing was ever poisoned */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct rabbitmq_delivery *first;
	struct rabbitmq_delivery **last;
	uint64_t serial; /* of the connection that it has; 0: none */
	enum rabbitmq_ack ack;
	uint64_t ack_tag; /* everything up to this one */
	bool woken;
};

extern const struct rabbitmq_duty rabbitmq_reader;

#endif

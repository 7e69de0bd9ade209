/*
 * Declarations shared by the files of this adapter. The types and codes of amqp.h do not leave this
 * folder. Here, "channel" alone means a channel of ports/bus.h; the channels of AMQP are called
 * AMQP channels.
 *
 *   url         parses the user's URL
 *   socket      the socket to the broker, plain or TLS
 *   link        a connection and its thread; other threads may only wake, cut or stop it
 *   connection  logs in, waits and disconnects; called by a link's thread
 *   topology    declares exchanges, queues and bindings
 *   watcher     the link that declares everything and checks whether the broker responds
 *   letter      converts messages to AMQP and back
 *   publisher   a link that publishes letters and determines the fate of each letter; a producer
 *               has one, and a consumer has one for its poisoned messages
 *   reader      the link of a consumer: receives deliveries and acknowledges them
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

#define RABBITMQ_PLACES_MAX 8

/* The address of a node. */
struct rabbitmq_place {
	const char *host;
	int port;
};

struct rabbitmq_url {
	bool tls;
	const char *user;
	const char *password;                              /* a secret */
	struct rabbitmq_place places[RABBITMQ_PLACES_MAX]; /* the nodes of one cluster */
	size_t place_count;
	const char *vhost;
	bool has_quorum_queues; /* declare quorum queues instead of the broker's default kind */
	int heartbeat_s;
	const char *cacert_file;
	const char *cert_file; /* this and key_file are NULL without a client certificate */
	const char *key_file;  /* the private key */
	bool verify;
};

/*
 * Parses a URL; the strings of `url` are allocated from `arena`. If the URL is not valid, returns
 * false and writes the reason to `why`. The reason repeats no value of the URL, because a value may
 * be a secret.
 */
QP_MUST_CHECK bool rabbitmq_url_parse(
	const char *text, struct arena *arena, struct rabbitmq_url *url, char *why, size_t size);

/* ---- socket ------------------------------------------------------------------------------ */

/*
 * Returns an unconnected socket for the connection `state`, which owns the socket. On failure
 * returns NULL and writes the reason to `why`.
 */
QP_MUST_CHECK amqp_socket_t *rabbitmq_socket_new(
	amqp_connection_state_t state, const struct rabbitmq_url *url, char *why, size_t size);

/* Returns false and writes the reason to `why` if a file that the URL names cannot be used. */
QP_MUST_CHECK bool rabbitmq_socket_check(const struct rabbitmq_url *url, char *why, size_t size);

/* ---- links ------------------------------------------------------------------------------- */

/* The number of the only AMQP channel that a link opens. */
#define RABBITMQ_AMQP_CHANNEL 1
#define RABBITMQ_WORDS_SIZE 320
/* link->words begins with this text if the socket to the broker could not be opened */
#define RABBITMQ_NO_ANSWER "cannot connect"

struct rabbitmq_bus;
struct rabbitmq_link;

enum rabbitmq_event {
	RABBITMQ_FRAME,
	RABBITMQ_WOKEN,
	RABBITMQ_QUIET, /* nothing arrived in time */
	RABBITMQ_GONE,  /* the connection is no longer usable; link->words contains the reason */
};

/* The result of serve(). */
enum rabbitmq_end {
	RABBITMQ_STOPPED,  /* the link was stopped: close the connection properly */
	RABBITMQ_REPLACED, /* drop the connection and reconnect immediately */
	RABBITMQ_LOST,     /* the connection is lost; link->words contains the reason */
};

/* The purpose of a link. The link's thread calls these functions. */
struct rabbitmq_duty {
	/* Prepares the connection after each login, e.g. declares queues. On failure returns false
	 * and sets link->words. */
	bool (*set_up)(struct rabbitmq_link *link);

	/* Uses the connection until it is lost, until it must be replaced, or until
	 * rabbitmq_link_is_stopped() returns true. */
	enum rabbitmq_end (*serve)(struct rabbitmq_link *link);

	/*
	 * Wakes threads that wait for the connection or the bus. Called after the link has lost its
	 * connection or could not connect, and after each pause in which the link waited for the
	 * bus to come up. May be NULL.
	 */
	void (*notify)(struct rabbitmq_link *link);

	bool is_watcher; /* connects even while the bus is down */
};

/*
 * A connection and the thread that owns it.
 *
 *   state        event                                    next
 *   waiting      the bus is up and the pause is over      connecting
 *   connecting   login and set_up() have succeeded        served
 *   connecting   anything fails                           waiting, with a growing pause
 *   served       serve() returns REPLACED or LOST         waiting; pauses after repeated failures
 *   any          rabbitmq_link_stop()                     ended
 */
struct rabbitmq_link {
	struct rabbitmq_bus *bus;
	const struct rabbitmq_duty *duty;
	char who[160]; /* the link's name in the log and in the broker's list of connections */
	pthread_t thread;
	int wake_fd;
	struct rabbitmq_link *next; /* next in bus->links */

	/* The members up to logged_words are used only by the link's thread. */
	amqp_connection_state_t state;   /* NULL while not connected */
	size_t attempt;                  /* selects which node of the URL to connect to */
	uint64_t serial;                 /* random, different for each connection */
	char words[RABBITMQ_WORDS_SIZE]; /* the reason of the last failure */
	/* the reason in the link's last warning; "" if it has not warned since it last connected */
	char logged_words[RABBITMQ_WORDS_SIZE];

	_Atomic int failures; /* consecutive failures */
	_Atomic bool stopped;

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t ended;
	int cut_fd; /* a duplicate of the socket's descriptor; -1 if there is none */
	bool is_served;
	bool has_ended;
};

/* Starts the thread. The texts `role` and `name` together describe the purpose of the link, e.g.
 * "consumer of " and the name of a group. */
void rabbitmq_link_start(struct rabbitmq_link *link, struct rabbitmq_bus *bus,
	const struct rabbitmq_duty *duty, const char *role, const char *name);

/* Returns the node that the link is connected to, or tries to connect to. */
const struct rabbitmq_place *rabbitmq_link_place(const struct rabbitmq_link *link);

/* Ends the thread within seconds and releases the link. Must not be called by the link's own
 * thread. */
void rabbitmq_link_stop(struct rabbitmq_link *link);

/* Ends the current call of rabbitmq_link_wait() or rabbitmq_link_pause(). If no such call is under
 * way, ends the next call. Any thread; never blocks. */
void rabbitmq_link_wake(struct rabbitmq_link *link);

/* Cuts the connection, so that all calls of the link's thread on this connection fail. Any thread;
 * never blocks. */
void rabbitmq_link_cut(struct rabbitmq_link *link);

bool rabbitmq_link_is_stopped(struct rabbitmq_link *link);

/* ---- connections; called only by the link's thread ----------------------------------------- */

/*
 * Connects, logs in and calls the duty's set_up(). On failure returns false and sets link->words;
 * the caller must call rabbitmq_link_disconnect() even then.
 */
QP_MUST_CHECK bool rabbitmq_link_connect(struct rabbitmq_link *link);

/* Closes the connection. If `in_order` is true, notifies the broker first. */
void rabbitmq_link_disconnect(struct rabbitmq_link *link, bool in_order);

/* Waits for `ms` milliseconds, or until the link is woken. Call this only while there is no
 * connection. */
void rabbitmq_link_pause(struct rabbitmq_link *link, int ms);

/*
 * Waits for a frame, a wake-up or monotonic time `until_ns`. Sends heartbeats while it waits.
 * `frame` is valid until the next call. Returns GONE if the AMQP channel or the connection is
 * closed.
 */
enum rabbitmq_event rabbitmq_link_wait(
	struct rabbitmq_link *link, amqp_frame_t *frame, int64_t until_ns);

/* Returns true if a request succeeded. Otherwise sets link->words to "<what><name>: <reason>". */
QP_MUST_CHECK bool rabbitmq_link_check_reply(
	struct rabbitmq_link *link, amqp_rpc_reply_t reply, const char *what, const char *name);

/* Like rabbitmq_link_check_reply(), for functions of rabbitmq-c that return a status code. */
QP_MUST_CHECK bool rabbitmq_link_check_code(struct rabbitmq_link *link, int code, const char *what);

/* Sets link->words. */
void rabbitmq_link_explain(struct rabbitmq_link *link, const char *format, ...) QP_PRINTF(2, 3);

/* ---- the bus ----------------------------------------------------------------------------- */

struct rabbitmq_bus {
	struct bus base;
	const char *url_text;
	const struct bus_channel *channels;
	size_t channel_count;
	struct arena arena; /* holds the strings of `url` */
	struct rabbitmq_url url;

	struct rabbitmq_link watch;
	bool running;

	_Atomic bool up;       /* the broker responds; all exchanges and queues are declared */
	_Atomic bool doubted;  /* a declared exchange or queue may no longer exist */
	_Atomic int blocked;   /* how many publishers the broker has blocked */
	_Atomic int frame_max; /* the maximum size of a frame, as negotiated with the broker */

	pthread_mutex_t lock; /* guards the members below; never held across a blocking call */
	struct rabbitmq_link *links;
};

/* Casts, and aborts if `base` is not a RabbitMQ bus. */
struct rabbitmq_bus *rabbitmq_bus_of(struct bus *base);

/* Returns NULL if the bus has no channel of that name. */
const struct bus_channel *rabbitmq_bus_channel(const struct rabbitmq_bus *bus, struct slice name);

/* Returns whether messages can be published now. Any thread, never blocks. */
bool rabbitmq_bus_is_up(struct rabbitmq_bus *bus);

/* A link that has entered the bus is woken whenever the bus comes up or goes down:
 * rabbitmq_bus_wake_links() wakes all links that have entered. Any thread. */
void rabbitmq_bus_enter(struct rabbitmq_bus *bus, struct rabbitmq_link *link);
void rabbitmq_bus_leave(struct rabbitmq_bus *bus, struct rabbitmq_link *link);
void rabbitmq_bus_wake_links(struct rabbitmq_bus *bus);

/* ---- watcher ----------------------------------------------------------------------------- */

void rabbitmq_watcher_start(struct rabbitmq_bus *bus);
void rabbitmq_watcher_stop(struct rabbitmq_bus *bus);

/* Makes the watcher declare all exchanges and queues again at its next probe, because an exchange
 * or a queue may be missing. Any thread. */
void rabbitmq_watcher_doubt(struct rabbitmq_bus *bus);

/* ---- topology ------------------------------------------------------------------------------ */

/*
 * Only the link's thread may call the functions of this section. Each function blocks for one round
 * trip or more. On failure it returns false and sets link->words.
 */

/* Declares the exchange of a channel and a queue for each of its groups. */
QP_MUST_CHECK bool rabbitmq_declare_channel(
	struct rabbitmq_link *link, const struct bus_channel *channel);

/* Declares the queue of a group and binds it to the exchange of its channel, which must exist. */
QP_MUST_CHECK bool rabbitmq_declare_group(
	struct rabbitmq_link *link, const struct bus_channel *channel, const char *group);

QP_MUST_CHECK bool rabbitmq_declare_queue(struct rabbitmq_link *link, const char *queue);

/* Checks that the exchange of a channel still exists. */
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

/* A message to be published. The letter does not own the data that it points to. */
struct rabbitmq_letter {
	amqp_bytes_t exchange;
	amqp_bytes_t routing_key;
	amqp_basic_properties_t properties;
	amqp_bytes_t body;
	size_t index; /* for the caller's use */

	enum bus_fate fate; /* set by the publisher */

	/* Only the publisher sets is_returned and is_settled. */
	bool is_returned; /* the broker has returned the letter: no queue is bound for it */
	bool is_settled;  /* the broker has confirmed or refused the letter */
};

/* A message that has arrived. */
struct rabbitmq_delivery {
	amqp_message_t message;
	amqp_bytes_t routing_key; /* owned */
	uint64_t tag;
	uint64_t serial; /* the serial of the connection on which the message arrived */
	const char *why; /* why the message is poisoned; NULL if it is not */
	struct rabbitmq_delivery *next;
};

void rabbitmq_delivery_free(struct rabbitmq_delivery *delivery);

/*
 * Fills `letter` from `message`. Where possible, the letter points into the message; everything
 * else is allocated from `arena`. Returns false if AMQP cannot carry the message, or if the bus
 * does not have the message's channel.
 */
QP_MUST_CHECK bool rabbitmq_letter_write(struct rabbitmq_letter *letter, struct arena *arena,
	const struct rabbitmq_bus *bus, const struct bus_message *message);

/* Fills `letter` with a copy of the poisoned delivery `from`, to be published to `queue`. Adds the
 * headers by which MassTransit describes a fault. */
void rabbitmq_letter_write_fault(struct rabbitmq_letter *letter, struct arena *arena,
	const struct rabbitmq_bus *bus, const struct rabbitmq_delivery *from, const char *queue);

/* Fills `delivery` from `from`. The slices of `delivery` point into `from` or `channel`, or are
 * allocated from `arena`. */
void rabbitmq_delivery_read(struct bus_delivery *delivery, struct arena *arena,
	const struct bus_channel *channel, const struct rabbitmq_delivery *from);

/* ---- publishers -------------------------------------------------------------------------- */

/* The letters that a caller wants to publish together. */
struct rabbitmq_job {
	struct rabbitmq_letter *letters;
	size_t count;
	int64_t until_ns;
	bool done;
};

enum rabbitmq_readiness { RABBITMQ_AWAY, RABBITMQ_READY, RABBITMQ_BLOCKED };

struct rabbitmq_publisher {
	struct rabbitmq_link link;
	const char *queue; /* declared whenever the link connects; NULL if there is no queue */

	/* The members up to replace_at_ns are used only by the link's thread. */
	struct rabbitmq_job *current; /* NULL between jobs */
	uint64_t first_tag;           /* the delivery tag of the job's first letter */
	size_t written;               /* how many letters of the job are written */
	size_t outstanding; /* how many written letters are neither confirmed nor refused */
	/* all letters before this index are confirmed or refused; some later letters may be
	 * confirmed or refused, too */
	size_t settled;
	/* the broker can no longer return (basic.return) letters before this index */
	size_t next_return;
	uint64_t next_tag;
	bool is_blocked;
	/* the connection must be replaced: a confirm is missing, the queue is missing, or the
	 * broker refused a letter */
	bool is_stale;
	int64_t replace_at_ns; /* until this time, a refusal does not set is_stale */

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t changed;
	enum rabbitmq_readiness readiness;
	struct rabbitmq_job *job; /* NULL if there is nothing to do */
};

/* Starts a publisher. `queue` must outlive the publisher; NULL means that there is no queue to
 * declare. */
struct rabbitmq_publisher *rabbitmq_publisher_new(struct rabbitmq_bus *bus, const char *queue);

/* Stops the link, which may take seconds, and frees the publisher. */
void rabbitmq_publisher_free(struct rabbitmq_publisher *publisher);

/*
 * Works like publish() of the port. Before the call, the fate of each letter must be NOT_PERSISTED.
 * The publisher does not use the letters after the call. One thread at a time.
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
 * The deliveries form a list in order of arrival. The last fetch returned the first `given`
 * deliveries; the first `acked` of these are acknowledged. All other deliveries wait for the next
 * fetch.
 */
struct rabbitmq_consumer {
	struct consumer base;
	struct rabbitmq_link link; /* this link is the reader (rabbitmq_reader.c) */
	const struct bus_channel *channel;
	char *queue;

	/* The members up to the lock are used only by the thread that calls fetch() and ack(). */
	/* holds the deliveries of the last fetch, and the letters for poisoned messages */
	struct arena arena;
	size_t given; /* how many deliveries the last fetch returned */
	size_t acked; /* how many deliveries of the last fetch are acknowledged */
	char *error_queue;
	/* NULL until there is a poisoned message to publish */
	struct rabbitmq_publisher *error_publisher;

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t changed;
	struct rabbitmq_delivery *first;
	struct rabbitmq_delivery **last;
	uint64_t serial; /* the serial of the current connection; 0 if there is none */
	enum rabbitmq_ack ack;
	uint64_t ack_tag; /* the reader must acknowledge every delivery up to this tag */
	bool woken;
};

/* The duty of a consumer's link. */
extern const struct rabbitmq_duty rabbitmq_reader;

#endif

/*
 * Declarations shared by the files of this adapter. The types and codes of nats.h do not leave this
 * folder.
 *
 *   url        parses the user's URL
 *   subject    the names of streams, and which subjects belong to which stream
 *   link       opens one connection, writes to it and closes it
 *   mailbox    receives the replies to one thread's requests
 *   api        JetStream's requests and replies in JSON
 *   streams    creates and changes streams
 *   watcher    a thread that connects, prepares the streams and checks whether the server responds
 *   message    converts the port's messages to NATS messages and back
 *   producer   publishes
 *
 * and, in nats_consuming.h:
 *
 *   pipe       the messages that the server sends to one consumer, received by a thread of cnats
 *   durable    creates a consumer on the server, and reads messages that the server no longer
 *              delivers
 *   hand       the messages that a consumer holds
 *   consumer, bus: the port's functions
 *
 * The adapter does not use these features of cnats: reconnecting, JetStream publishing and Fetch.
 *
 * - While cnats reconnects, it buffers published messages and sends them later; even a buffer of
 *   size 0 holds one message. This adapter instead opens a new connection when a connection has
 *   ended.
 * - A socket write that times out leaves half a message on a connection that cnats continues to
 *   use; the server then treats the next bytes as the second half of that message. This adapter
 *   closes the connection immediately; see nats_link_send().
 * - Fetch cannot be woken, and waits until it has as many messages as were requested. Therefore
 *   this adapter sends its own pull requests; see nats_pipe_request().
 * - cnats reports the acknowledgements of js_PublishAsync() at any time, on one of cnats's threads.
 *   In this adapter the acknowledgements arrive in a mailbox, which the waiting thread reads; see
 *   nats_producer.c.
 */
#ifndef QUIPU_ADAPTERS_BUS_NATS_NATS_INTERNAL_H
#define QUIPU_ADAPTERS_BUS_NATS_NATS_INTERNAL_H

#include <assert.h>
#include <nats/nats.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "adapters/bus/nats/nats_bus.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/steady.h"

struct nats_bus;

/* ---- url --------------------------------------------------------------------------------- */

#define NATS_SERVERS_MAX 16

struct nats_url {
	const char *servers[NATS_SERVERS_MAX]; /* nats://host:port, without secrets */
	int server_count;
	const char *shown; /* the servers as the user wrote them, without secrets, for the log */
	bool secure;
	const char *user; /* this and the following strings are NULL if not set */
	const char *password;
	const char *token;
	const char *creds;
	const char *tls_ca;
	const char *tls_cert;
	const char *tls_key;
	int64_t ack_wait_ns;
	int64_t max_deliver;
	int64_t replicas;
};

/*
 * Parses a URL; the strings of `url` are allocated from `arena`. If the URL is not valid, returns
 * false and writes the reason to `why`. The reason repeats no value of the URL, because a value may
 * be a secret.
 */
QP_MUST_CHECK bool nats_url_parse(
	const char *text, struct arena *arena, struct nats_url *url, char *why, size_t size);

/* ---- subjects ---------------------------------------------------------------------------- */

#define NATS_NAME_SIZE 128
#define NATS_SUBJECTS_MAX 16

/* A channel and its JetStream stream. */
struct nats_channel {
	const char *name;
	char stream[NATS_NAME_SIZE];
	struct slice subjects[NATS_SUBJECTS_MAX]; /* point into the declared channel */
	size_t subject_count;
	/* the watcher has logged that the server refused to change the stream */
	bool refused;
	/* the watcher has logged that the URL's user lacks the permission to compare the stream's
	 * consumer groups with the stream; see nats_durable_delivered() */
	bool forbidden;

	/* the highest sequence that the stream is known to have; messages published later must get
	 * higher sequences */
	_Atomic int64_t last;
	/* when `last` was lowered after a loss; 0 if that never happened. Messages that arrived
	 * before may be lost ones, so their sequences do not raise `last` again. */
	_Atomic int64_t lowered_ns;
	/* the lowest sequence that the server has lost with the end of the stream, and assigns a
	 * second time; 0 if no loss was noticed, or the watcher has begun to repair it */
	_Atomic int64_t lost_from;
};

/* Fills `channel` from the declared channel `from`. If a name or subject of the channel cannot be
 * used with JetStream, returns false and writes the reason to `why`. */
QP_MUST_CHECK bool nats_channel_init(
	struct nats_channel *channel, const struct bus_channel *from, char *why, size_t size);

/*
 * Records the sequence that the server has confirmed for a message, which was published when the
 * stream already had the sequence `floor`. Sequences only grow, even if another server becomes the
 * stream's leader. So if the sequence of a new message is not above `floor`, the server has lost
 * the stream's end: the function then lowers `lost_from` to `sequence` and returns false. If the
 * message is a `duplicate`, the stream may have had it before `floor`, so a low sequence means
 * nothing. Any thread; producers may see the reused sequences in another order than the stream.
 */
QP_MUST_CHECK bool nats_channel_note(
	struct nats_channel *channel, int64_t floor, int64_t sequence, bool duplicate);

/* Records that the stream has had the sequence, e.g. because a consumer has received this message
 * of another process: raises `last` to it. Any thread. */
void nats_channel_raise(struct nats_channel *channel, int64_t sequence);

/* Records that the stream has lost this sequence and all higher ones: lowers `lost_from` to it. Any
 * thread. */
void nats_channel_lose(struct nats_channel *channel, int64_t sequence);

/* Returns true if a stream or durable may have this name: only letters, digits, - and _. */
bool nats_name_is_valid(struct slice name);

/*
 * Returns true if messages can be published to the subject: it has no empty tokens, no wildcards,
 * and no characters that would end a line of the protocol.
 */
bool nats_subject_is_plain(struct slice subject);

/* Returns true if `pattern` matches every subject that `subject` matches. Both may have
 * wildcards. */
bool nats_subject_covers(struct slice pattern, struct slice subject);

/* ---- links ------------------------------------------------------------------------------- */

/*
 * A link is one connection, opened by the watcher, with a count of the threads that hold it. Any
 * thread that holds the link may use it until it breaks. When the last holder releases the link, it
 * is freed.
 */
struct nats_link {
	struct nats_bus *bus;
	natsConnection *connection;
	int64_t payload_max;
	_Atomic bool broken;
	/* the server has refused a request, because the user has no permission */
	_Atomic bool forbidden;
	sem_t closed;            /* posted when cnats no longer reads from the connection */
	pthread_mutex_t writing; /* held while a message is written; a timeout bounds the write */

	/* Subscriptions that have ended and are not destroyed yet. Guarded by `writing`. */
	natsSubscription **retired;
	size_t retired_count;
	size_t retired_size;

	size_t holders; /* guarded by the bus's lock */
};

/* Checks the options of the URL without connecting. If cnats cannot use them, returns false and
 * writes the reason to `why`. */
QP_MUST_CHECK bool nats_link_check(const struct nats_url *url, char *why, size_t size);

/* Why a bus is down. */
enum nats_trouble {
	NATS_AWAY,    /* the server does not respond; the error text may differ at each attempt */
	NATS_REFUSED, /* the server responds but refuses the connection */
};

/* Connects and returns the link, which the caller must release. On failure returns NULL and sets
 * `trouble` and `why`. */
QP_MUST_CHECK struct nats_link *nats_link_open(
	struct nats_bus *bus, enum nats_trouble *trouble, char *why, size_t size);

/* Returns the bus's link, which the caller must release, or NULL if the bus is not up. Any
 * thread. */
struct nats_link *nats_link_hold(struct nats_bus *bus);

/*
 * Releases the link. Never call this in a callback of cnats, because the last holder waits until
 * cnats no longer reads from the connection.
 */
void nats_link_release(struct nats_link *link);

/*
 * Ends the connection for all its users: subscriptions end and waiting calls return. Any thread;
 * may be called more than once.
 */
void nats_link_break(struct nats_link *link);

enum nats_sent {
	NATS_SENT,   /* the message was written to the socket */
	NATS_UNSENT, /* nothing was written; the link is unchanged, or was already broken */
	NATS_BROKEN, /* a part of the message may have been written; the link is now broken */
};

/* Writes a message to the socket. Blocks until the whole message is written or a timeout expires.
 * Any thread. */
QP_MUST_CHECK enum nats_sent nats_link_send(struct nats_link *link, natsMsg *message);

/* Like nats_link_send(), but for a message without headers, which consists of `subject` and `data`.
 * `reply`, the address for a reply, may be NULL. */
QP_MUST_CHECK enum nats_sent nats_link_post(
	struct nats_link *link, const char *subject, const char *reply, struct slice data);

/*
 * Subscribes; a thread of cnats calls `handler` for each message. On failure breaks the link and
 * returns NULL.
 */
QP_MUST_CHECK natsSubscription *nats_link_subscribe(
	struct nats_link *link, const char *subject, natsMsgHandler handler, void *context);

/*
 * Like nats_link_subscribe(), but without a handler: the caller reads the messages with
 * natsSubscription_NextMsg(). If `queue` is not NULL, the subscription joins this queue group, and
 * the server sends each message to only one subscription of the group.
 */
QP_MUST_CHECK natsSubscription *nats_link_listen(
	struct nats_link *link, const char *subject, const char *queue);

/*
 * Ends the subscription; the link destroys it later. When the function returns, the subscription's
 * handler may still be running; see natsSubscription_SetOnCompleteCB().
 */
void nats_link_unsubscribe(struct nats_link *link, natsSubscription *subscription);

/*
 * Pings the server. If it responds, destroys the subscriptions that had ended before the ping.
 * Called only by the watcher.
 */
QP_MUST_CHECK natsStatus nats_link_ping(struct nats_link *link, int64_t timeout_ms);

/* ---- mailboxes --------------------------------------------------------------------------- */

#define NATS_INBOX_SIZE 64
#define NATS_ADDRESS_SIZE (NATS_INBOX_SIZE + 48)

/*
 * Receives replies, here called letters, for one thread on one link. The thread sends its requests
 * in numbered rounds. The address of a letter contains the number of the round and the number of
 * the request within the round. Letters of earlier rounds are dropped when they are read, so a
 * thread may abandon a round before all its letters have arrived.
 */
struct nats_mailbox {
	struct nats_link *link; /* NULL while the mailbox is closed */
	natsSubscription *subscription;
	char inbox[NATS_INBOX_SIZE];
	uint64_t round;
	bool stale; /* the current round was abandoned; its replies may still arrive */
};

/* Opens a closed mailbox. Returns false if the link is broken. The caller must hold the link until
 * nats_mailbox_close(). */
QP_MUST_CHECK bool nats_mailbox_open(struct nats_mailbox *mailbox, struct nats_link *link);

/* Does nothing if the mailbox is closed. */
void nats_mailbox_close(struct nats_mailbox *mailbox);

/*
 * Begins a new round of requests. If the previous round was abandoned, opens a new inbox first. If
 * the new inbox cannot be opened, breaks the link, leaves the mailbox closed and returns false.
 * Also returns false if the mailbox was already closed.
 */
QP_MUST_CHECK bool nats_mailbox_begin(struct nats_mailbox *mailbox);

/* Sets `address` to the subject to which the server must send the reply to request `number` of the
 * current round. */
void nats_mailbox_address(
	const struct nats_mailbox *mailbox, size_t number, char address[NATS_ADDRESS_SIZE]);

/* Ends the current round of requests although replies are missing. */
void nats_mailbox_abandon(struct nats_mailbox *mailbox);

enum nats_mail {
	NATS_LETTER,  /* a reply has arrived; the caller must destroy it */
	NATS_NOBODY,  /* a request had no receiver; cnats does not report which request */
	NATS_NOTHING, /* no reply arrived by `until_ns`, or the link is broken */
};

/* Waits for the next reply of the current round of requests, until monotonic time `until_ns`. Sets
 * `*letter` to the reply, and `*number` to the number of its request. */
QP_MUST_CHECK enum nats_mail nats_mailbox_next(
	struct nats_mailbox *mailbox, natsMsg **letter, size_t *number, int64_t until_ns);

/*
 * Sends a request in a new round and waits for the reply until monotonic time `until_ns`. Once
 * `*hurry` is true, the wait ends within a tenth of a second; `hurry` may be NULL.
 */
QP_MUST_CHECK enum nats_mail nats_mailbox_request(struct nats_mailbox *mailbox, const char *subject,
	struct slice request, int64_t until_ns, const _Atomic bool *hurry, natsMsg **letter);

/*
 * The server sends a status as a message without data. For such a message, nats_status_of() returns
 * the code ("503", "408", …), and nats_status_words() returns its description. For other messages,
 * both functions return "". The texts are valid as long as the message.
 */
const char *nats_status_of(natsMsg *message);
const char *nats_status_words(natsMsg *message);

/* ---- JetStream's API --------------------------------------------------------------------- */

struct nats_answer {
	json_t *body;    /* NULL if there was no readable reply */
	int64_t error;   /* 0: success; -1: no usable reply; otherwise JetStream's jsErrCode */
	char words[160]; /* the error as text */
};

/*
 * Sends a request to `subject`, e.g. "$JS.API.STREAM.INFO.<stream>", and waits for the reply.
 * Always fills `answer`, which the caller releases. See nats_mailbox_request() for `hurry`.
 */
void nats_api_call(struct nats_mailbox *mailbox, const char *subject, struct slice request,
	const _Atomic bool *hurry, struct nats_answer *answer);
void nats_answer_release(struct nats_answer *answer);

/* Return the member `name` of an object. If the member is missing, nats_json_int() returns 0 and
 * nats_json_text() returns "". */
int64_t nats_json_int(const json_t *object, const char *name);
const char *nats_json_text(const json_t *object, const char *name);

/* ---- streams ----------------------------------------------------------------------------- */

/*
 * Creates the streams of all channels, or changes existing streams where needed. Compares the
 * declared groups with their streams, and restarts those that have read messages which the server
 * has lost (nats_durable_restart()). Called only by the watcher. On failure returns false and
 * writes the reason to `why`.
 *
 * Must be called after a link was opened and before anything is published over that link. Otherwise
 * new messages may get the lost sequences, and the loss is no longer visible. A cluster may also
 * lose the end of a stream while the link stays open. A producer then notices that a sequence was
 * reused (nats_channel_note()), unless another process was first to publish and this process knew
 * none of the lost messages.
 */
QP_MUST_CHECK bool nats_streams_prepare(
	struct nats_bus *bus, struct nats_mailbox *mailbox, char *why, size_t size);

/* ---- messages ---------------------------------------------------------------------------- */

/*
 * Converts `message` for NATS. `reply` is the address for the server's reply. The caller destroys
 * the result and may then reset `scratch`. Returns NULL if the message cannot be sent, e.g. because
 * it is larger than `payload_max`.
 */
QP_MUST_CHECK natsMsg *nats_message_new(const struct nats_channel *channel,
	const struct bus_message *message, const char *reply, int64_t payload_max,
	struct arena *scratch);

/*
 * Fills `delivery`, but sets time_us, position, identity, handle and is_exhausted to 0; the caller
 * must set these members afterwards. The slices of `delivery` point into `message` or `channel`, or
 * are allocated from `arena`.
 */
void nats_message_read(natsMsg *message, const struct nats_channel *channel, struct arena *arena,
	struct bus_delivery *delivery);

/* What the reply subject of a delivered message says about the message. A consumer sends its
 * acknowledgement to this subject. */
struct nats_metadata {
	uint64_t sequence;   /* the message's number in the stream */
	uint64_t deliveries; /* how often the message was delivered, including this time */
	int64_t time_us;     /* when the message was published */
};

/* Reads the metadata from `reply`. Returns false if `reply` is not a subject for an
 * acknowledgement. */
QP_MUST_CHECK bool nats_metadata_parse(const char *reply, struct nats_metadata *metadata);

/* ---- the bus ----------------------------------------------------------------------------- */

struct nats_bus {
	struct bus base;
	const char *url_text;
	const struct bus_channel *declared;
	struct nats_channel *channels;
	size_t channel_count;
	struct arena arena; /* holds the strings of `url` */
	struct nats_url url;

	/* The members up to logged_reason are used only by the watcher. */
	pthread_t thread;
	bool running;
	bool logged_up; /* the last log line reported that the bus is up */
	enum nats_trouble logged_trouble;
	/* the reason in the last log line about an outage; "" while the bus is up */
	char logged_reason[256];

	_Atomic bool up; /* there is a link, and the streams exist */
	/* the watcher must check the streams soon: a producer or consumer has found that a stream
	 * is missing or has lost its newest messages */
	_Atomic bool check_soon;
	_Atomic bool stopping;
	_Atomic size_t users; /* open producers and consumers */

	pthread_mutex_t lock; /* guards the members below; never held across a blocking call */
	/* NULL until the streams are prepared, and after the connection has ended */
	struct nats_link *link;
};

/* Casts, and aborts if `base` is not a NATS bus. */
struct nats_bus *nats_bus_of(struct bus *base);

/* Returns NULL if the channel was not declared. */
struct nats_channel *nats_bus_channel(struct nats_bus *bus, struct slice name);

/* Returns the single subject that the group wants, or NULL if the group wants all subjects. */
const char *nats_bus_group_subject(
	const struct nats_bus *bus, const char *channel, const char *group);

/* ---- watcher ----------------------------------------------------------------------------- */

/* Starts the thread. On failure returns false and writes the reason to `why`. */
QP_MUST_CHECK bool nats_watcher_start(struct nats_bus *bus, char *why, size_t size);

/* Breaks the link if the bus is up, so that no thread waits for a hanging server, and then waits
 * until the watcher's thread has ended. */
void nats_watcher_stop(struct nats_bus *bus);

/* ---- producers and consumers ------------------------------------------------------------- */

struct producer *nats_producer_open(struct bus *base);
struct consumer *nats_consumer_open(struct bus *base, const char *channel, const char *group);

#endif

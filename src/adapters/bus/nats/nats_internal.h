/*
 * What the files of this adapter share. The types and codes of nats.h go no further than this
 * folder.
 *
 *   url        what the user wrote
 *   subject    names of streams, and which subjects belong to which
 *   link       one connection, until it ends; writing on it
 *   mailbox    where answers to what one thread has sent arrive
 *   api        JetStream's requests and answers in JSON
 *   streams    makes and changes streams
 *   watcher    the thread that connects, prepares the streams, and knows whether the server answers
 *   message    the port's messages as messages of NATS, and back
 *   producer   publishes
 *
 * and, in nats_consuming.h:
 *
 *   pipe       what the server sends to one consumer, and the thread that takes it from the library
 *   durable    makes the server's side of a consumer, reads what it has given up
 *   hand       what a consumer has taken and not settled
 *   consumer, bus: the port's functions
 *
 * cnats's own reconnecting, its JetStream publishing and its Fetch are not used:
 *
 * - While it reconnects, it keeps what is published, and sends it later (at least one message,
 *   whatever size of buffer is asked for). Here a connection that ends is over, and another begins.
 * - A write that times out leaves half a message on a connection that cnats goes on using; what is
 *   written next becomes the rest of it. Here it is closed at once, see nats_link_send().
 * - Fetch cannot be woken, and waits until it has as many as were asked for. The server itself can
 *   do better, see nats_pipe_request().
 * - Acknowledgements of js_PublishAsync() come in a thread of the library, whenever they come. Here
 *   they come to a mailbox, which is read by the thread that waits for them; see nats_producer.c.
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
	bool secure;
	const char *user; /* NULL: none */
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

/* false: `why` says what is wrong with it, without any value. The strings are in `arena`. */
QP_MUST_CHECK bool nats_url_parse(
	const char *text, struct arena *arena, struct nats_url *url, char *why, size_t size);

/* ---- subjects ---------------------------------------------------------------------------- */

#define NATS_NAME_SIZE 128
#define NATS_SUBJECTS_MAX 16

/* A channel, as JetStream has it. */
struct nats_channel {
	const char *name;
	char stream[NATS_NAME_SIZE];
	struct slice subjects[NATS_SUBJECTS_MAX]; /* point into what the program has named */
	size_t subject_count;
	bool refused; /* the watcher's: the server does not let us change it, and we have said so */
};

/* false: `why` says what is wrong with the names. */
QP_MUST_CHECK bool nats_channel_init(
	struct nats_channel *channel, const struct bus_channel *from, char *why, size_t size);

/* What a stream, a durable or a token may be called: letters, digits, - and _. */
bool nats_name_is_valid(struct slice name);

/* Can be published to: no empty tokens, no wildcards, nothing that ends a line of the protocol. */
bool nats_subject_is_plain(struct slice subject);

/* Whether `pattern` has all subjects that `subject` has, which may have wildcards itself. */
bool nats_subject_covers(struct slice pattern, struct slice subject);

/* ---- links ------------------------------------------------------------------------------- */

/*
 * One connection. It is used from when the watcher has made it until it is broken, by any thread
 * that holds it, and freed when nobody does.
 */
struct nats_link {
	struct nats_bus *bus;
	natsConnection *connection;
	int64_t payload_max;
	_Atomic bool broken;
	sem_t closed;            /* posted by cnats once nothing reads any more */
	pthread_mutex_t writing; /* held for one message, at most for as long as a write may take */

	/* Ended and not destroyed yet; with `writing`. */
	natsSubscription **retired;
	size_t retired_count;
	size_t retired_size;

	size_t holders; /* under the bus's lock */
};

/* false: no connection can ever be made with this, `why`. */
QP_MUST_CHECK bool nats_link_check(const struct nats_url *url, char *why, size_t size);

/* Why a bus is down. */
enum nats_trouble {
	NATS_AWAY,    /* the server does not answer; the words differ from try to try */
	NATS_REFUSED, /* it does, and will not have us */
};

/* Connects; the caller holds it. NULL: `trouble` and `why`. */
QP_MUST_CHECK struct nats_link *nats_link_open(
	struct nats_bus *bus, enum nats_trouble *trouble, char *why, size_t size);

/* The bus's link, held for the caller. NULL: the bus is not up. */
struct nats_link *nats_link_hold(struct nats_bus *bus);

/* The last to release it waits until cnats reads no more; so never in a callback of cnats. */
void nats_link_release(struct nats_link *link);

/* Ends it for all who use it; subscriptions end, waiting calls return. Any thread, more than once.
 */
void nats_link_break(struct nats_link *link);

enum nats_sent {
	NATS_SENT,   /* it is on its way */
	NATS_UNSENT, /* nothing was written, and the link is as it was or was broken before */
	NATS_BROKEN, /* some of it may have been written; the link is broken now */
};

QP_MUST_CHECK enum nats_sent nats_link_send(struct nats_link *link, natsMsg *message);

/* The same for a few bytes. `reply` may be NULL. */
QP_MUST_CHECK enum nats_sent nats_link_post(
	struct nats_link *link, const char *subject, const char *reply, struct slice data);

/* Subscribes, with a thread of the library that runs `handler`. NULL: the link is broken now. */
QP_MUST_CHECK natsSubscription *nats_link_subscribe(
	struct nats_link *link, const char *subject, natsMsgHandler handler, void *context);

/* The same for a thread that calls natsSubscription_NextMsg(). `queue`: the group with which it
 * shares, or NULL. */
QP_MUST_CHECK natsSubscription *nats_link_listen(
	struct nats_link *link, const char *subject, const char *queue);

/* Ends it; the link destroys it later. A handler may still run: see
 * natsSubscription_SetOnCompleteCB(). */
void nats_link_unsubscribe(struct nats_link *link, natsSubscription *subscription);

/* Whether the server answers; destroys the subscriptions that had ended before. The watcher's. */
QP_MUST_CHECK natsStatus nats_link_ping(struct nats_link *link, int64_t timeout_ms);

/* ---- mailboxes --------------------------------------------------------------------------- */

#define NATS_INBOX_SIZE 64
#define NATS_ADDRESS_SIZE (NATS_INBOX_SIZE + 48)

/*
 * Of one thread, on one link. Letters are told apart by round and number; those of earlier rounds
 * are thrown away when they come, so whoever stops waiting says so and is done.
 */
struct nats_mailbox {
	struct nats_link *link; /* NULL: closed */
	natsSubscription *subscription;
	char inbox[NATS_INBOX_SIZE];
	uint64_t round;
	bool stale; /* something of this round may still come */
};

QP_MUST_CHECK bool nats_mailbox_open(struct nats_mailbox *mailbox, struct nats_link *link);
void nats_mailbox_close(struct nats_mailbox *mailbox); /* also when it is closed */

/* Another round. false: the link is broken. */
QP_MUST_CHECK bool nats_mailbox_begin(struct nats_mailbox *mailbox);
void nats_mailbox_address(
	const struct nats_mailbox *mailbox, size_t number, char address[NATS_ADDRESS_SIZE]);

/* Not all that was asked in this round has been answered, and nobody waits any more. */
void nats_mailbox_abandon(struct nats_mailbox *mailbox);

enum nats_mail {
	NATS_LETTER,  /* which the caller destroys, and its number */
	NATS_NOBODY,  /* one of those that were asked does not exist; cnats does not tell which */
	NATS_NOTHING, /* until `until_ns`, or the link is broken */
};

/* The next of this round. */
QP_MUST_CHECK enum nats_mail nats_mailbox_next(
	struct nats_mailbox *mailbox, natsMsg **letter, size_t *number, int64_t until_ns);

/* Sends a request and waits for its answer. `hurry` may be NULL; once it is true, the answer is
 * waited for a tenth of a second only. */
QP_MUST_CHECK enum nats_mail nats_mailbox_ask(struct nats_mailbox *mailbox, const char *subject,
	struct slice request, int64_t until_ns, const _Atomic bool *hurry, natsMsg **letter);

/* "503", "408", … of a message that is only a status; else "". Valid as long as the message. */
const char *nats_status_of(natsMsg *message);
const char *nats_status_words(natsMsg *message);

/* ---- JetStream's API --------------------------------------------------------------------- */

struct nats_answer {
	json_t *body;    /* NULL: none that could be read */
	int64_t error;   /* 0: it was done; -1: no answer; else JetStream's code (jsErrCode) */
	char words[160]; /* of the error */
};

/* Asks "$JS.API.<verb>.<stream>[.<name>]". Always fills `answer`, which is to be released. */
void nats_api_ask(struct nats_mailbox *mailbox, const char *subject, struct slice request,
	const _Atomic bool *hurry, struct nats_answer *answer);
void nats_answer_release(struct nats_answer *answer);

/* Numbers and texts of an object; 0 and "" where there are none. */
int64_t nats_json_int(const json_t *object, const char *name);
const char *nats_json_text(const json_t *object, const char *name);

/* ---- streams ----------------------------------------------------------------------------- */

/* Makes and changes what is needed. false: `why`. */
QP_MUST_CHECK bool nats_streams_prepare(
	struct nats_bus *bus, struct nats_mailbox *mailbox, char *why, size_t size);

/* ---- messages ---------------------------------------------------------------------------- */

/* What `message` becomes, to be destroyed; `scratch` may be reset after. NULL: it cannot be sent.
 */
QP_MUST_CHECK natsMsg *nats_message_make(const struct nats_channel *channel,
	const struct bus_message *message, const char *reply, int64_t payload_max,
	struct arena *scratch);

/* Fills everything but position, handle and is_exhausted, with pointers into `message` and `arena`.
 */
void nats_message_read(natsMsg *message, const struct nats_channel *channel, struct arena *arena,
	struct bus_delivery *delivery);

/* What the subject for acknowledging tells of a delivery. false: it is none. */
struct nats_metadata {
	uint64_t sequence;   /* in the stream */
	uint64_t deliveries; /* this one included */
};
QP_MUST_CHECK bool nats_metadata_parse(const char *reply, struct nats_metadata *metadata);

/* ---- the bus ----------------------------------------------------------------------------- */

struct nats_bus {
	struct bus base;
	const char *url_text;
	const struct bus_channel *declared;
	struct nats_channel *channels;
	size_t channel_count;
	struct arena arena; /* what the url says */
	struct nats_url url;

	/* The watcher's own. */
	pthread_t thread;
	bool running;
	bool said_up;
	enum nats_trouble said_trouble;
	char said[256]; /* why it is down, in the last line of the log; "" before the first */

	_Atomic bool up;        /* there is a link, and the streams are there */
	_Atomic bool look_soon; /* somebody misses a stream */
	_Atomic bool stopping;

	pthread_mutex_t lock;   /* guards what follows; never held while something waits */
	struct nats_link *link; /* NULL: none that is prepared */
	size_t users;           /* producers and consumers that are open */
};

/* Checked downcast. */
struct nats_bus *nats_bus_of(struct bus *base);

/* NULL: not one the program has named. */
struct nats_channel *nats_bus_channel(struct nats_bus *bus, struct slice name);

/* The one subject that a group wants; NULL: all. */
const char *nats_bus_group_subject(
	const struct nats_bus *bus, const char *channel, const char *group);

void nats_bus_enter(struct nats_bus *bus);
void nats_bus_leave(struct nats_bus *bus);

/* ---- watcher ----------------------------------------------------------------------------- */

QP_MUST_CHECK bool nats_watcher_start(struct nats_bus *bus, char *why, size_t size);
void nats_watcher_stop(struct nats_bus *bus);

/* ---- producers and consumers ------------------------------------------------------------- */

struct producer *nats_producer_open(struct bus *base);
struct consumer *nats_consumer_open(struct bus *base, const char *channel, const char *group);

#endif

/*
 * Declarations shared by the files of this adapter. The types and codes of rdkafka.h do not leave
 * this folder.
 *
 *   url        turns the user's URL into options of librdkafka
 *   client     configures and starts one client of librdkafka (an rd_kafka_t), and copies its log
 *              lines to our log
 *   watcher    a thread that creates topics, destroys retired clients, and checks whether the
 *              cluster responds
 *   places     records how far a group has read each partition, and detects when Kafka has lost the
 *              end of a log
 *   producer, consumer, bus: the port's functions
 */
#ifndef QUIPU_ADAPTERS_BUS_KAFKA_KAFKA_INTERNAL_H
#define QUIPU_ADAPTERS_BUS_KAFKA_KAFKA_INTERNAL_H

#include <assert.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "adapters/bus/kafka/kafka_bus.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/steady.h"

/* ---- url --------------------------------------------------------------------------------- */

#define KAFKA_OPTIONS_MAX 32

struct kafka_option {
	const char *name;
	const char *value;   /* may be a secret */
	bool consumers_only; /* librdkafka warns if a producer gets this option */
};

struct kafka_url {
	const char *servers;
	struct kafka_option options[KAFKA_OPTIONS_MAX];
	size_t option_count;
};

/*
 * Parses a URL; the strings of `url` are allocated from `arena`. Returns false if the URL is not
 * valid; `why` then says what is wrong, without repeating any value, because a value may be a
 * secret.
 */
QP_MUST_CHECK bool kafka_url_parse(
	const char *text, struct arena *arena, struct kafka_url *url, char *why, size_t size);

/* ---- clients ----------------------------------------------------------------------------- */

struct kafka_bus;
struct kafka_consumer;

struct kafka_setting {
	const char *name;
	const char *value;
};

/* The context that librdkafka passes to callbacks. Must live as long as its `rk`. */
struct kafka_client {
	struct kafka_bus *bus;
	rd_kafka_t *rk;                  /* NULL until kafka_client_open() */
	struct kafka_consumer *consumer; /* NULL unless the client belongs to a consumer */
	struct kafka_client *next;       /* next in bus->retired */

	/* how many connections of this client were closed after they had received data; counted
	 * only if the client belongs to a consumer */
	_Atomic uint64_t closed_connections;
};

/*
 * Returns a configuration, which the caller owns. The user's options override our defaults, and
 * `settings` override the user's options. The last entry of `settings` has no name. If librdkafka
 * refuses a value, returns NULL and writes the reason to `why`.
 */
QP_MUST_CHECK rd_kafka_conf_t *kafka_conf_new(struct kafka_client *client, rd_kafka_type_t type,
	const struct kafka_setting *settings, char *why, size_t size);

/* Starts the client. On failure returns false and writes the reason to `why`. Takes ownership of
 * `conf` in either case. */
QP_MUST_CHECK bool kafka_client_open(struct kafka_client *client, rd_kafka_type_t type,
	rd_kafka_conf_t *conf, char *why, size_t size);

/* ---- the bus ----------------------------------------------------------------------------- */

struct kafka_bus {
	struct bus base;
	const char *url_text;
	const struct bus_channel *channels;
	size_t channel_count;
	struct arena arena; /* holds the strings of `url` */
	struct kafka_url url;

	/* The members up to `running` are used only by the watcher. */
	struct kafka_client watch;
	rd_kafka_queue_t *news;
	/* the topic whose metadata probe() requests; NULL until the topics exist */
	rd_kafka_topic_t *probed;
	pthread_t thread;
	bool running;

	_Atomic bool up;       /* the cluster responds and the topics exist */
	bool has_logged_state; /* the watcher has already logged whether Kafka is reachable */
	int64_t started_ns;
	_Atomic bool stopping;
	_Atomic size_t users;     /* open producers and consumers */
	_Atomic size_t abandoned; /* how many of the users were abandoned (kafka_bus_abandon()) */

	/* The next two members limit how many lines librdkafka logs. They hold the time at which
	 * the current interval began, and the number of warnings and errors that librdkafka has
	 * reported since then. */
	_Atomic int64_t log_interval_from_ns;
	_Atomic int log_lines;

	pthread_mutex_t lock; /* guards the members below; never held across a blocking call */
	pthread_cond_t changed;
	bool has_topics;
	struct kafka_client *retired;
};

/* Casts, and aborts if `base` is not a Kafka bus. */
struct kafka_bus *kafka_bus_of(struct bus *base);

/*
 * Gives up a consumer whose client could not be destroyed in time. The bus is then never freed,
 * because the threads of that client still use it. When the process exits, it does not run the exit
 * handlers of libraries, because OpenSSL's handler would free memory that those threads use. Any
 * thread.
 */
void kafka_bus_abandon(struct kafka_bus *bus);

/* Returns NULL if the channel was not declared. */
const struct bus_channel *kafka_bus_channel(const struct kafka_bus *bus, struct slice name);

/* ---- watcher ----------------------------------------------------------------------------- */

/* Starts the watcher's client and thread. On failure returns false and writes the reason to
 * `why`. */
QP_MUST_CHECK bool kafka_watcher_start(struct kafka_bus *bus, char *why, size_t size);

/* Ends the thread, if it was started, and destroys all retired clients. Blocks. */
void kafka_watcher_stop(struct kafka_bus *bus);

/* Passes the client to the watcher, whose thread destroys it later, because destroying a client may
 * block. Any thread. */
void kafka_watcher_retire(struct kafka_bus *bus, struct kafka_client *client);

/* ---- positions --------------------------------------------------------------------------- */

/* How far the check of a position has come; kafka_places.c has the table of states. */
enum kafka_place_state {
	KAFKA_PLACE_UNREAD,
	KAFKA_PLACE_DOUBTED,
	KAFKA_PLACE_FOUND,
	KAFKA_PLACE_AWAITED,
	KAFKA_PLACE_SURE,
	KAFKA_PLACE_LOST,
};

/* The size of a message's name. The name contains the message's time and a digest, and the consumer
 * commits it as the metadata of an offset. */
#define KAFKA_NAME_SIZE 64

/* The position of a group in one partition: the last message that the group has read from the
 * partition. */
struct kafka_place {
	int32_t partition;
	enum kafka_place_state state;
	int64_t offset;             /* the offset of the last message read; -1 if there is none */
	char name[KAFKA_NAME_SIZE]; /* the name of the last message read; empty if unknown */
	int32_t broker;             /* the broker that sent the last message read; -1 if unknown */
	int32_t leader;             /* the leader of the partition; used only by compare_ends() */
};

/* The group's positions in all partitions that a consumer owns. Used only by the consumer's
 * thread. */
struct kafka_places {
	struct kafka_place *all;
	size_t count;
	uint64_t closed_connections; /* the last value seen of client->closed_connections */
	bool are_settled;            /* no position waits for kafka_places_settle() */
	int64_t retry_ns; /* monotonic time before which kafka_places_settle() does not retry */
};

/* Makes a client count the connections that it closes. Call this before the client is opened. */
void kafka_places_watch(rd_kafka_conf_t *conf);

/* Drops all positions and starts over with the partitions that were just assigned. */
void kafka_places_assign(
	struct kafka_places *places, const rd_kafka_topic_partition_list_t *partitions);

/*
 * Checks each position whose log may have changed, and moves the position back if Kafka has lost
 * the end of the log. Returns true if all positions are settled, i.e. need no further check.
 * Otherwise returns false, e.g. because Kafka is unreachable, a broker does not answer within two
 * seconds, or a partition has no leader. The caller must then call this function again. Until the
 * position in a partition is settled, kafka_places_take() refuses all messages of that partition.
 */
QP_MUST_CHECK bool kafka_places_settle(
	struct kafka_places *places, struct kafka_client *client, const char *topic);

/* If the message is the next one of its partition, moves the position to the message and returns
 * true. If the function returns false, the caller must drop the message: the group has read it
 * before, or it will arrive again. */
QP_MUST_CHECK bool kafka_places_take(struct kafka_places *places, struct kafka_client *client,
	const rd_kafka_message_t *message);

/* Call this instead of kafka_places_take() if the consumer cannot hold another message. The message
 * then arrives again, because the next kafka_places_settle() resumes reading the partition at the
 * group's position. */
void kafka_places_return(struct kafka_places *places, const rd_kafka_message_t *message);

/* Writes the name of a message to `name`: "quipu", the message's time, and a digest of its key and
 * value, separated by spaces. */
void kafka_message_name(const rd_kafka_message_t *message, char name[KAFKA_NAME_SIZE]);

void kafka_places_release(struct kafka_places *places);

/* ---- producers and consumers ------------------------------------------------------------- */

struct producer *kafka_producer_open(struct bus *base);
struct consumer *kafka_consumer_open(struct bus *base, const char *channel, const char *group);

#endif

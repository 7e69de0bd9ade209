/*
 * What the files of this adapter share. The types and codes of rdkafka.h go no further than this
 * folder.
 *
 *   url        what the user wrote, as options of librdkafka
 *   client     one rd_kafka_t, configured; its log lines
 *   watcher    the thread that knows whether the cluster answers, makes topics, buries old clients
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
	bool consumers_only; /* other clients would warn about it */
};

struct kafka_url {
	const char *servers;
	struct kafka_option options[KAFKA_OPTIONS_MAX];
	size_t option_count;
};

/* false: `why` says what is wrong with it, without any value. The strings are in `arena`. */
QP_MUST_CHECK bool kafka_url_parse(
	const char *text, struct arena *arena, struct kafka_url *url, char *why, size_t size);

/* ---- clients ----------------------------------------------------------------------------- */

struct kafka_bus;
struct kafka_consumer;

struct kafka_setting {
	const char *name;
	const char *value;
};

/* What librdkafka gives back to callbacks. Lives as long as the client. */
struct kafka_client {
	struct kafka_bus *bus;
	rd_kafka_t *rk; /* NULL: none yet */
	struct kafka_consumer *consumer;
	struct kafka_client *next; /* in bus->retired */
};

/* The user's options, then `settings` up to one without a name. NULL: `why`. */
QP_MUST_CHECK rd_kafka_conf_t *kafka_conf_new(struct kafka_client *client, rd_kafka_type_t type,
	const struct kafka_setting *settings, char *why, size_t size);

/* Takes `conf` in any case. false: `why`. */
QP_MUST_CHECK bool kafka_client_open(struct kafka_client *client, rd_kafka_type_t type,
	rd_kafka_conf_t *conf, char *why, size_t size);

/* ---- the bus ----------------------------------------------------------------------------- */

struct kafka_bus {
	struct bus base;
	const char *url_text;
	const struct bus_channel *channels;
	size_t channel_count;
	struct arena arena; /* what the url says */
	struct kafka_url url;

	/* The watcher's own. */
	struct kafka_client watch;
	rd_kafka_queue_t *news;
	rd_kafka_topic_t *probed; /* NULL: not known yet whether there are topics */
	pthread_t thread;
	bool running;

	_Atomic bool up; /* the cluster answers, and the topics are there */
	_Atomic bool stopping;

	/* How many lines librdkafka may still log in this interval. */
	_Atomic int64_t log_interval_from_ns;
	_Atomic int log_lines;

	pthread_mutex_t lock; /* guards what follows; never held while something waits */
	pthread_cond_t changed;
	bool has_topics;
	struct kafka_client *retired;
	size_t users; /* producers and consumers that are open */
};

/* Checked downcast. */
struct kafka_bus *kafka_bus_of(struct bus *base);

/* NULL: not one the program has named. */
const struct bus_channel *kafka_bus_channel(const struct kafka_bus *bus, struct slice name);

void kafka_bus_enter(struct kafka_bus *bus);
void kafka_bus_leave(struct kafka_bus *bus);

/* ---- watcher ----------------------------------------------------------------------------- */

QP_MUST_CHECK bool kafka_watcher_start(struct kafka_bus *bus, char *why, size_t size);
void kafka_watcher_stop(struct kafka_bus *bus);

/* Hands over a client that is to be destroyed, which may take a while. */
void kafka_watcher_retire(struct kafka_bus *bus, struct kafka_client *client);

/* ---- producers and consumers ------------------------------------------------------------- */

struct producer *kafka_producer_open(struct bus *base);
struct consumer *kafka_consumer_open(struct bus *base, const char *channel, const char *group);

#endif

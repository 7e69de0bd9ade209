/*
 * Records how far a consumer's group has read each partition that the consumer owns (the group's
 * position in that partition), and detects when Kafka has lost the end of a log.
 *
 * An offset does not identify a message for ever. A broker that has lost the end of its log
 * (because its disk was restored from a backup, or a replica that lagged behind became the leader)
 * reuses the offsets of the lost messages for new ones. A consumer that had read the lost messages
 * would mistake the new ones for messages that it has read. Kafka numbers the leaders of a
 * partition (leader epochs) so that clients can detect such a loss, but librdkafka 2.0 does not
 * compare these numbers. Therefore a position consists of the offset of the last message read and
 * the name of that message, which contains a digest of the message. The consumer commits the name
 * as the metadata of the offset. Whenever the log may have changed, the consumer goes back by one
 * message, and must find the position's message again before it takes newer ones.
 *
 *   state     event                                                      next
 *   any       the partition is assigned                                  UNREAD
 *   UNREAD    Kafka has returned the offset that the group committed     DOUBTED
 *   DOUBTED   the log still reaches the position's message               FOUND
 *             the log ends before the position's message                 LOST
 *   FOUND     the partition was set back to the position's message       AWAITED
 *             nothing was ever read: the partition was set to its start  SURE
 *   AWAITED   the position's message arrives, or a newer one             SURE
 *             an older message or another with the same offset arrives   LOST
 *   SURE      a message arrives that is not newer than the position's    LOST
 *   LOST      the position was moved to a day before its message         FOUND
 *   AWAITED,  a message arrives that the consumer cannot hold            FOUND
 *   SURE
 *   FOUND,    a connection was closed, or a message arrives from         DOUBTED
 *   AWAITED,  another broker
 *   SURE
 *
 * A position is settled once it is AWAITED or SURE. Each position is settled separately, so a
 * partition without a leader does not delay the others.
 *
 * If a message arrives that is newer than the awaited one, retention has deleted the awaited
 * message. If an older message arrives, the log has become shorter since the position was compared
 * with the end of the log; in that case librdkafka has started again at the beginning of the log
 * (auto.offset.reset).
 *
 * Messages are lost only when a leader restarts, which closes its connections, or when another
 * broker becomes the leader. A failed connection attempt does not count as a closed connection;
 * otherwise each attempt to reach a broker that is away would make all positions DOUBTED, including
 * those at other brokers.
 *
 * After a loss, the consumer reads again from a day before the position's message. The consuming
 * service recognises the messages that it has already handled. A day is enough: messages published
 * after the loss are newer than the lost ones, apart from differences between the producers'
 * clocks. If the time of the position's message is unknown or more than 28 days ago, the consumer
 * goes back 29 days from now, because services recognise the messages of the last 30 days. Messages
 * that retention has deleted do not count as lost.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapters/bus/kafka/kafka_internal.h"
#include "base/digest.h"
#include "base/log.h"

#define CALL_TIMEOUT_MS 2000
#define DAY_MS (24LL * 3600 * 1000)
#define BACK_MS DAY_MS
#define BACK_MAX_MS (29 * DAY_MS)

/* If an attempt to settle the positions leaves some of them unsettled, the pause before the next
 * attempt is as long as the attempt took, but at least this long. During the pause the consumer
 * reads the partitions whose positions are settled. */
#define PAUSE_MIN_NS (200 * NS_PER_MS)

#define NAME_FORMAT "quipu %" PRId64 " "
#define NAME_DIGEST_SIZE 12

/* ---- names ------------------------------------------------------------------------------- */

void kafka_message_name(const rd_kafka_message_t *message, char name[KAFKA_NAME_SIZE])
{
	rd_kafka_timestamp_type_t type;
	const struct slice parts[] = {slice_make(message->key, message->key_len),
		slice_make(message->payload, message->len)};
	unsigned char digest[SHA256_SIZE];
	int length = snprintf(
		name, KAFKA_NAME_SIZE, NAME_FORMAT, rd_kafka_message_timestamp(message, &type));

	digest_parts(parts, 2, digest);
	for (int i = 0; i < NAME_DIGEST_SIZE; i++)
		length += snprintf(
			name + length, KAFKA_NAME_SIZE - (size_t)length, "%02x", digest[i]);
}

/* Returns the time in a name, in milliseconds, or 0 if the name contains no time. */
static int64_t time_in(const char *name)
{
	int64_t time_ms;

	return sscanf(name, NAME_FORMAT, &time_ms) == 1 ? time_ms : 0;
}

/* ---- connections ------------------------------------------------------------------------- */

/* Returns true if the socket has ever received anything, even if its connection is broken by now.
 * Also returns true if the kernel cannot report how much the socket has received. */
static bool has_worked(int fd)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
	       info.tcpi_bytes_received > 0;
}

static int close_socket(int fd, void *opaque)
{
	struct kafka_client *client = opaque;

	if (has_worked(fd))
		atomic_fetch_add(&client->closed_connections, 1);
	return close(fd);
}

void kafka_places_watch(rd_kafka_conf_t *conf)
{
	rd_kafka_conf_set_closesocket_cb(conf, close_socket);
}

/* ---- all positions ----------------------------------------------------------------------- */

void kafka_places_release(struct kafka_places *places)
{
	free(places->all);
	*places = (struct kafka_places){.are_settled = true};
}

void kafka_places_assign(
	struct kafka_places *places, const rd_kafka_topic_partition_list_t *partitions)
{
	kafka_places_release(places);
	places->count = (size_t)partitions->cnt;
	places->all = qp_calloc(places->count + 1, sizeof(places->all[0]));
	places->are_settled = places->count == 0;
	for (size_t i = 0; i < places->count; i++)
		places->all[i] = (struct kafka_place){.partition = partitions->elems[i].partition,
			.state = KAFKA_PLACE_UNREAD,
			.offset = -1,
			.broker = -1};
}

static struct kafka_place *find(struct kafka_places *places, int32_t partition)
{
	for (size_t i = 0; i < places->count; i++) {
		if (places->all[i].partition == partition)
			return &places->all[i];
	}
	return NULL;
}

static bool has_any(const struct kafka_places *places, enum kafka_place_state state)
{
	for (size_t i = 0; i < places->count; i++) {
		if (places->all[i].state == state)
			return true;
	}
	return false;
}

static rd_kafka_topic_partition_list_t *list(
	const struct kafka_places *places, enum kafka_place_state state, const char *topic)
{
	rd_kafka_topic_partition_list_t *listed =
		rd_kafka_topic_partition_list_new((int)places->count + 1);

	for (size_t i = 0; i < places->count; i++) {
		const struct kafka_place *place = &places->all[i];

		if (place->state == state)
			rd_kafka_topic_partition_list_add(listed, topic, place->partition)->offset =
				place->offset;
	}
	return listed;
}

/* ---- doubting ---------------------------------------------------------------------------- */

static void doubt(struct kafka_places *places, struct kafka_place *place)
{
	if (place->state == KAFKA_PLACE_UNREAD || place->state == KAFKA_PLACE_LOST)
		return;
	place->state = KAFKA_PLACE_DOUBTED;
	place->broker = -1;
	places->are_settled = false;
	places->retry_ns = 0;
}

/*
 * If a connection was closed since the last call, marks each position that is neither UNREAD nor
 * LOST as DOUBTED. Called before each message is taken. librdkafka opens a new connection only
 * after closing the old one, so this function notices the closed connection before the first
 * message of the new connection is taken.
 */
static void compare_connections(struct kafka_places *places, struct kafka_client *client)
{
	uint64_t closed = atomic_load(&client->closed_connections);

	for (size_t i = 0; i < places->count && closed != places->closed_connections; i++)
		doubt(places, &places->all[i]);
	places->closed_connections = closed;
}

/* ---- settling ---------------------------------------------------------------------------- */

static void note_commit(struct kafka_place *place, const rd_kafka_topic_partition_t *committed)
{
	place->offset = committed->offset > 0 ? committed->offset - 1 : -1;
	place->state = KAFKA_PLACE_DOUBTED;
	if (committed->metadata && committed->metadata_size < KAFKA_NAME_SIZE) {
		memcpy(place->name, committed->metadata, committed->metadata_size);
		place->name[committed->metadata_size] = '\0';
	}
	if (time_in(place->name) == 0)
		place->name[0] = '\0'; /* the commit is from another program or an operator */
}

static void read_commits(
	struct kafka_places *places, struct kafka_client *client, const char *topic)
{
	rd_kafka_topic_partition_list_t *commits = list(places, KAFKA_PLACE_UNREAD, topic);
	bool done =
		commits->cnt > 0 && rd_kafka_committed(client->rk, commits, CALL_TIMEOUT_MS) == 0;

	for (int i = 0; i < commits->cnt && done; i++) {
		if (commits->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR)
			note_commit(find(places, commits->elems[i].partition), &commits->elems[i]);
	}
	rd_kafka_topic_partition_list_destroy(commits);
}

static void lose(struct kafka_places *places, struct kafka_client *client,
	struct kafka_place *place, const char *topic)
{
	log_line(LOG_WARN, "bus",
		"%s: Kafka has lost the end of partition %" PRId32 " of topic %s: the message at "
		"offset %" PRId64
		" is gone; reading earlier messages again and skipping those that "
		"were already handled",
		client->bus->base.name, place->partition, topic, place->offset);
	place->state = KAFKA_PLACE_LOST;
	places->are_settled = false;
	places->retry_ns = 0;
}

/* Sets the `leader` of each position to the broker that leads the partition, or to -1 if the
 * cluster does not answer or the partition has no leader. */
static void find_leaders(
	struct kafka_places *places, struct kafka_client *client, const char *topic)
{
	rd_kafka_topic_t *handle = rd_kafka_topic_new(client->rk, topic, NULL);
	const struct rd_kafka_metadata *metadata = NULL;

	for (size_t i = 0; i < places->count; i++)
		places->all[i].leader = -1;
	if (handle && rd_kafka_metadata(client->rk, 0, handle, &metadata, CALL_TIMEOUT_MS) == 0 &&
		metadata->topic_cnt == 1) {
		for (int i = 0; i < metadata->topics[0].partition_cnt; i++) {
			const rd_kafka_metadata_partition_t *found =
				&metadata->topics[0].partitions[i];
			struct kafka_place *place = find(places, found->id);

			if (place)
				place->leader = found->leader;
		}
	}
	if (metadata)
		rd_kafka_metadata_destroy(metadata);
	if (handle)
		rd_kafka_topic_destroy(handle);
}

/* Compares positions with the ends of their logs. The end of a log is the offset of its next
 * message. If the position is at or beyond the end, the log no longer contains the position's
 * message, so the position is LOST. */
static void take_ends(struct kafka_places *places, struct kafka_client *client, const char *topic,
	const rd_kafka_topic_partition_list_t *ends)
{
	for (int i = 0; i < ends->cnt; i++) {
		struct kafka_place *place = find(places, ends->elems[i].partition);

		if (ends->elems[i].err != RD_KAFKA_RESP_ERR_NO_ERROR)
			continue;
		if (ends->elems[i].offset <= place->offset)
			lose(places, client, place, topic);
		else
			place->state = KAFKA_PLACE_FOUND;
	}
}

/*
 * Compares DOUBTED positions with the ends of their logs, but only in partitions whose leader is
 * the broker `leader`. librdkafka answers a request for several partitions only as a whole: if a
 * request included a partition of another broker that is away, no partition would get an answer.
 */
static void compare_ends_at(
	struct kafka_places *places, struct kafka_client *client, const char *topic, int32_t leader)
{
	rd_kafka_topic_partition_list_t *ends =
		rd_kafka_topic_partition_list_new((int)places->count);

	for (size_t i = 0; i < places->count; i++) {
		struct kafka_place *place = &places->all[i];

		if (place->state != KAFKA_PLACE_DOUBTED || place->leader != leader)
			continue;
		place->leader = -1; /* so that compare_ends() does not request this end again */
		rd_kafka_topic_partition_list_add(ends, topic, place->partition)->offset =
			RD_KAFKA_OFFSET_END;
	}
	if (rd_kafka_offsets_for_times(client->rk, ends, CALL_TIMEOUT_MS) == 0)
		take_ends(places, client, topic, ends);
	rd_kafka_topic_partition_list_destroy(ends);
}

static void compare_ends(
	struct kafka_places *places, struct kafka_client *client, const char *topic)
{
	if (!has_any(places, KAFKA_PLACE_DOUBTED))
		return;
	find_leaders(places, client, topic);
	for (size_t i = 0; i < places->count; i++) {
		const struct kafka_place *place = &places->all[i];

		if (place->state == KAFKA_PLACE_DOUBTED && place->leader >= 0)
			compare_ends_at(places, client, topic, place->leader);
	}
}

/*
 * Sets `*offset` to the offset of the first message that is not older than `time_ms`. If all
 * messages are older, sets `*offset` to the end that the log had before the search, so that
 * messages added during the search are not skipped. Returns false if Kafka does not answer.
 */
static bool find_time(struct kafka_client *client, const char *topic, int32_t partition,
	int64_t time_ms, int64_t *offset)
{
	rd_kafka_topic_partition_list_t *times = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_t *wanted =
		rd_kafka_topic_partition_list_add(times, topic, partition);
	int64_t low, high;
	bool found;

	wanted->offset = time_ms;
	found = rd_kafka_query_watermark_offsets(
			client->rk, topic, partition, &low, &high, CALL_TIMEOUT_MS) == 0 &&
		rd_kafka_offsets_for_times(client->rk, times, CALL_TIMEOUT_MS) == 0 &&
		wanted->err == RD_KAFKA_RESP_ERR_NO_ERROR;
	if (found)
		*offset = wanted->offset >= 0 ? wanted->offset : high;
	rd_kafka_topic_partition_list_destroy(times);
	return found;
}

/* Returns the time, in milliseconds, from which messages must be read again after a loss. */
static int64_t time_to_go_back_to(const struct kafka_place *place)
{
	int64_t oldest_ms = clock_wall_us(&clock_system) / 1000 - BACK_MAX_MS;
	int64_t time_ms = time_in(place->name) - BACK_MS;

	return time_ms > oldest_ms ? time_ms : oldest_ms;
}

/* Moves each LOST position to just before the first message that must be read again. */
static void go_back(struct kafka_places *places, struct kafka_client *client, const char *topic)
{
	for (size_t i = 0; i < places->count; i++) {
		struct kafka_place *place = &places->all[i];
		int64_t offset;

		if (place->state != KAFKA_PLACE_LOST || !find_time(client, topic, place->partition,
								time_to_go_back_to(place), &offset))
			continue;
		place->offset = offset - 1;
		place->name[0] = '\0';
		place->state = KAFKA_PLACE_FOUND;
	}
}

static void seek(struct kafka_places *places, struct kafka_client *client, const char *topic)
{
	rd_kafka_topic_partition_list_t *targets = list(places, KAFKA_PLACE_FOUND, topic);
	rd_kafka_error_t *failure = NULL;

	for (int i = 0; i < targets->cnt; i++) {
		if (targets->elems[i].offset < 0)
			targets->elems[i].offset = RD_KAFKA_OFFSET_BEGINNING;
	}
	if (targets->cnt > 0)
		failure = rd_kafka_seek_partitions(client->rk, targets, CALL_TIMEOUT_MS);
	for (int i = 0; i < targets->cnt && !failure; i++) {
		struct kafka_place *place = find(places, targets->elems[i].partition);

		if (targets->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR)
			place->state = place->offset < 0 ? KAFKA_PLACE_SURE : KAFKA_PLACE_AWAITED;
	}
	rd_kafka_error_destroy(failure);
	rd_kafka_topic_partition_list_destroy(targets);
}

bool kafka_places_settle(
	struct kafka_places *places, struct kafka_client *client, const char *topic)
{
	int64_t began_ns = clock_steady_ns(&clock_system), took_ns;

	compare_connections(places, client);
	if (places->are_settled || !atomic_load(&client->bus->up) || began_ns < places->retry_ns)
		return places->are_settled;
	read_commits(places, client, topic);
	compare_ends(places, client, topic);
	go_back(places, client, topic);
	seek(places, client, topic);
	places->are_settled =
		!has_any(places, KAFKA_PLACE_UNREAD) && !has_any(places, KAFKA_PLACE_DOUBTED) &&
		!has_any(places, KAFKA_PLACE_FOUND) && !has_any(places, KAFKA_PLACE_LOST);
	took_ns = clock_steady_ns(&clock_system) - began_ns;
	places->retry_ns = began_ns + took_ns + (took_ns > PAUSE_MIN_NS ? took_ns : PAUSE_MIN_NS);
	return places->are_settled;
}

/* ---- taking ------------------------------------------------------------------------------ */

/* Returns false if this message shows that Kafka has lost messages. The position must be AWAITED or
 * SURE. */
static bool is_expected(const struct kafka_place *place, const rd_kafka_message_t *message)
{
	char name[KAFKA_NAME_SIZE];

	if (message->offset != place->offset || place->state == KAFKA_PLACE_SURE)
		return message->offset > place->offset;
	kafka_message_name(message, name);
	return place->name[0] == '\0' || !strcmp(place->name, name);
}

bool kafka_places_take(
	struct kafka_places *places, struct kafka_client *client, const rd_kafka_message_t *message)
{
	struct kafka_place *place = find(places, message->partition);
	int32_t broker = rd_kafka_message_broker_id(message);
	bool is_repeat;

	if (!place)
		return false;
	compare_connections(places, client);
	if (place->broker >= 0 && place->broker != broker)
		doubt(places, place);
	if (place->state != KAFKA_PLACE_AWAITED && place->state != KAFKA_PLACE_SURE)
		return false;
	if (!is_expected(place, message)) {
		lose(places, client, place, rd_kafka_topic_name(message->rkt));
		return false;
	}
	is_repeat = place->state == KAFKA_PLACE_AWAITED && message->offset == place->offset;
	place->state = KAFKA_PLACE_SURE;
	place->offset = message->offset;
	place->broker = broker;
	kafka_message_name(message, place->name);
	return !is_repeat;
}

void kafka_places_return(struct kafka_places *places, const rd_kafka_message_t *message)
{
	struct kafka_place *place = find(places, message->partition);

	if (!place || (place->state != KAFKA_PLACE_AWAITED && place->state != KAFKA_PLACE_SURE))
		return; /* partition is not assigned, or kafka_places_settle() will seek in it */
	place->state = KAFKA_PLACE_FOUND;
	places->are_settled = false;
	places->retry_ns = 0;
}

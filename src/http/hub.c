/*
 * Who wants a key is known twice: publishers see topics and branches, under the hub's lock; a loop
 * has the list of its subscribers in each of its branches, for itself. So offering a value to
 * thousands of streams holds no lock, and a publisher never waits for a loop.
 *
 *   topic     a key that somebody wants, with its newest value
 *   branch    a topic on one loop
 *   desk      all branches of one loop: those with a value that the loop has not taken yet
 *
 * Tasks are posted under the lock. A loop that ends has closed its streams before, and so has no
 * branches; a task that was posted until then is still run (see loop_stop()).
 */
#include "http/hub.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"
#include "http/worker.h"

#define BUCKETS_LEAST 64

struct subscriber {
	struct hub *hub;
	struct stream *stream;
	struct branch *branch;
	struct subscriber *before;
	struct subscriber *next;
};

struct branch {
	struct topic *topic;
	struct desk *desk;
	struct branch *next;           /* of the topic; under the lock, like the next four */
	struct branch *before_changed; /* at the desk */
	struct branch *next_changed;
	bool is_changed;
	size_t subscriber_count;

	struct subscriber *subscribers; /* the loop's own, like the next two */
	struct branch *next_taken;
	struct stream_event *taken; /* while it is being offered */
};

struct topic {
	struct topic *next; /* in its bucket */
	struct branch *branches;
	struct stream_event *newest; /* NULL: nothing was published since there is a topic */
	uint64_t hash;
	size_t key_len;
	char key[];
};

struct desk {
	struct loop_task task;
	struct hub *hub;
	struct http_worker *worker;
	struct desk *next;
	struct branch *changed;
	bool is_posted;
};

struct hub {
	pthread_mutex_t lock; /* guards all that follows */
	struct topic **buckets;
	size_t bucket_count; /* a power of two */
	size_t topic_count;
	struct desk *desks;
};

struct hub *hub_new(void)
{
	struct hub *hub = qp_calloc(1, sizeof(*hub));

	pthread_mutex_init(&hub->lock, NULL);
	hub->bucket_count = BUCKETS_LEAST;
	hub->buckets = qp_calloc(hub->bucket_count, sizeof(struct topic *));
	return hub;
}

void hub_free(struct hub *hub)
{
	assert(hub->topic_count == 0);
	while (hub->desks) {
		struct desk *desk = hub->desks;

		assert(!desk->is_posted);
		hub->desks = desk->next;
		free(desk);
	}
	free(hub->buckets);
	pthread_mutex_destroy(&hub->lock);
	free(hub);
}

/* ---- topics, under the lock -------------------------------------------------------------- */

static struct topic **bucket_of(struct hub *hub, uint64_t hash)
{
	return &hub->buckets[hash & (hub->bucket_count - 1)];
}

static struct topic *find_topic(struct hub *hub, struct slice key, uint64_t hash)
{
	struct topic *topic = *bucket_of(hub, hash);

	while (topic &&
		(topic->hash != hash || !slice_equal(slice_make(topic->key, topic->key_len), key)))
		topic = topic->next;
	return topic;
}

static void link_topic(struct hub *hub, struct topic *topic)
{
	struct topic **bucket = bucket_of(hub, topic->hash);

	topic->next = *bucket;
	*bucket = topic;
}

static void grow_buckets(struct hub *hub)
{
	struct topic **old = hub->buckets;
	size_t old_count = hub->bucket_count;

	hub->bucket_count *= 2;
	hub->buckets = qp_calloc(hub->bucket_count, sizeof(struct topic *));
	for (size_t i = 0; i < old_count; i++) {
		while (old[i]) {
			struct topic *topic = old[i];

			old[i] = topic->next;
			link_topic(hub, topic);
		}
	}
	free(old);
}

static struct topic *add_topic(struct hub *hub, struct slice key, uint64_t hash)
{
	struct topic *topic = qp_calloc(1, sizeof(*topic) + key.len);

	topic->hash = hash;
	topic->key_len = key.len;
	if (key.len > 0)
		memcpy(topic->key, key.data, key.len);
	if (hub->topic_count++ >= hub->bucket_count)
		grow_buckets(hub);
	link_topic(hub, topic);
	return topic;
}

static void remove_topic(struct hub *hub, struct topic *topic)
{
	struct topic **link = bucket_of(hub, topic->hash);

	while (*link != topic)
		link = &(*link)->next;
	*link = topic->next;
	hub->topic_count--;
	stream_event_drop(topic->newest);
	free(topic);
}

/* ---- desks and branches, under the lock -------------------------------------------------- */

static void run_desk(struct loop_task *task);

static struct desk *desk_of(struct hub *hub, struct http_worker *worker)
{
	struct desk *desk = hub->desks;

	while (desk && desk->worker != worker)
		desk = desk->next;
	if (desk)
		return desk;
	desk = qp_calloc(1, sizeof(*desk));
	desk->task.run = run_desk;
	desk->hub = hub;
	desk->worker = worker;
	desk->next = hub->desks;
	hub->desks = desk;
	return desk;
}

static struct branch *branch_of(struct topic *topic, struct desk *desk)
{
	struct branch *branch = topic->branches;

	while (branch && branch->desk != desk)
		branch = branch->next;
	if (branch)
		return branch;
	branch = qp_calloc(1, sizeof(*branch));
	branch->topic = topic;
	branch->desk = desk;
	branch->next = topic->branches;
	topic->branches = branch;
	return branch;
}

static void forget_changed(struct branch *branch)
{
	if (!branch->is_changed)
		return;
	branch->is_changed = false;
	if (branch->before_changed)
		branch->before_changed->next_changed = branch->next_changed;
	else
		branch->desk->changed = branch->next_changed;
	if (branch->next_changed)
		branch->next_changed->before_changed = branch->before_changed;
}

static void remove_branch(struct hub *hub, struct branch *branch)
{
	struct topic *topic = branch->topic;
	struct branch **link = &topic->branches;

	assert(!branch->subscribers && !branch->taken);
	forget_changed(branch);
	while (*link != branch)
		link = &(*link)->next;
	*link = branch->next;
	free(branch);
	if (!topic->branches)
		remove_topic(hub, topic);
}

/* ---- streams, on their loop -------------------------------------------------------------- */

static void on_stream_closed(void *context, struct stream *stream)
{
	struct subscriber *subscriber = context;
	struct branch *branch = subscriber->branch;
	struct hub *hub = subscriber->hub;

	assert(subscriber->stream == stream);
	if (subscriber->before)
		subscriber->before->next = subscriber->next;
	else
		branch->subscribers = subscriber->next;
	if (subscriber->next)
		subscriber->next->before = subscriber->before;
	free(subscriber);
	pthread_mutex_lock(&hub->lock);
	if (--branch->subscriber_count == 0)
		remove_branch(hub, branch);
	pthread_mutex_unlock(&hub->lock);
}

/* Where the streams of `key` are listed on this loop, with one more counted, and its newest value.
 */
static struct branch *join_branch(
	struct hub *hub, struct http_worker *worker, struct slice key, struct stream_event **newest)
{
	uint64_t hash = hash_bytes(key);
	struct topic *topic;
	struct branch *branch;

	pthread_mutex_lock(&hub->lock);
	topic = find_topic(hub, key, hash);
	if (!topic)
		topic = add_topic(hub, key, hash);
	branch = branch_of(topic, desk_of(hub, worker));
	branch->subscriber_count++;
	*newest = topic->newest ? stream_event_hold(topic->newest) : NULL;
	pthread_mutex_unlock(&hub->lock);
	return branch;
}

struct stream *hub_subscribe(struct hub *hub, struct request *request, struct slice key)
{
	struct subscriber *subscriber = qp_calloc(1, sizeof(*subscriber));
	struct stream_owner owner = {.closed = on_stream_closed, .context = subscriber};
	struct stream_event *newest;

	subscriber->hub = hub;
	subscriber->stream = stream_prepare(request, owner);
	if (!subscriber->stream) {
		free(subscriber);
		return NULL;
	}
	subscriber->branch = join_branch(hub, request->worker, key, &newest);
	subscriber->next = subscriber->branch->subscribers;
	if (subscriber->next)
		subscriber->next->before = subscriber;
	subscriber->branch->subscribers = subscriber;
	if (newest)
		stream_offer_event(subscriber->stream, newest);
	stream_event_drop(newest);
	return subscriber->stream;
}

/* The branches with a value that this loop did not have, linked by `next_taken`. */
static struct branch *take_changed(struct desk *desk)
{
	struct branch *taken = NULL;

	pthread_mutex_lock(&desk->hub->lock);
	desk->is_posted = false;
	while (desk->changed) {
		struct branch *branch = desk->changed;

		forget_changed(branch);
		branch->taken = stream_event_hold(branch->topic->newest);
		branch->next_taken = taken;
		taken = branch;
	}
	pthread_mutex_unlock(&desk->hub->lock);
	return taken;
}

/* On the loop. Offering closes no stream, so no branch goes away meanwhile. */
static void run_desk(struct loop_task *task)
{
	struct desk *desk = (struct desk *)task;

	for (struct branch *branch = take_changed(desk); branch; branch = branch->next_taken) {
		for (struct subscriber *one = branch->subscribers; one; one = one->next)
			stream_offer_event(one->stream, branch->taken);
		stream_event_drop(branch->taken);
		branch->taken = NULL;
	}
}

/* ---- publishers, any thread -------------------------------------------------------------- */

/* Under the lock. */
static void note_changed(struct branch *branch)
{
	struct desk *desk = branch->desk;

	if (branch->is_changed) {
		counter_add(&desk->worker->events_skipped, (int64_t)branch->subscriber_count);
		return;
	}
	branch->is_changed = true;
	branch->before_changed = NULL;
	branch->next_changed = desk->changed;
	if (desk->changed)
		desk->changed->before_changed = branch;
	desk->changed = branch;
	if (!desk->is_posted)
		loop_post(desk->worker->loop, &desk->task);
	desk->is_posted = true;
}

void hub_publish(struct hub *hub, struct slice key, int64_t version, struct slice data)
{
	uint64_t hash = hash_bytes(key);
	struct topic *topic;

	pthread_mutex_lock(&hub->lock);
	topic = find_topic(hub, key, hash);
	if (topic && (!topic->newest || topic->newest->id < version)) {
		stream_event_drop(topic->newest);
		topic->newest = stream_event_new(version, data);
		for (struct branch *branch = topic->branches; branch; branch = branch->next)
			note_changed(branch);
	}
	pthread_mutex_unlock(&hub->lock);
}

bool hub_wants(struct hub *hub, struct slice key)
{
	uint64_t hash = hash_bytes(key);
	bool wants;

	pthread_mutex_lock(&hub->lock);
	wants = find_topic(hub, key, hash) != NULL;
	pthread_mutex_unlock(&hub->lock);
	return wants;
}

size_t hub_keys(struct hub *hub, struct arena *arena, struct slice **keys)
{
	size_t count = 0;

	pthread_mutex_lock(&hub->lock);
	*keys = arena_array(arena, struct slice, hub->topic_count);
	for (size_t i = 0; i < hub->bucket_count; i++) {
		for (const struct topic *topic = hub->buckets[i]; topic; topic = topic->next)
			(*keys)[count++] =
				arena_copy(arena, slice_make(topic->key, topic->key_len));
	}
	assert(count == hub->topic_count);
	pthread_mutex_unlock(&hub->lock);
	return count;
}

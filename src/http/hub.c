/*
 * Subscriptions are kept on two levels. hub_publish() uses entries and branches, under the hub's
 * lock; the list of subscribers in a branch belongs to the branch's loop alone. So a loop holds no
 * lock while it offers a value to thousands of streams, and hub_publish() never waits for a loop.
 *
 *   entry    a key that has streams, with its newest value
 *   branch   the streams of an entry on one loop
 *   outlet   a loop, with the list of its branches whose newest value the loop has not taken yet
 *
 * A task is posted to a loop only under the lock, and only if the loop has a branch. A loop closes
 * all its streams before it ends, so it then has no branches and no task is posted to it any more.
 * A task that was posted earlier still runs (see loop_stop()).
 */
#include "http/hub.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/container.h"
#include "base/hash.h"
#include "http/worker.h"

#define BUCKETS_LEAST 64

/* Whether a stream counts towards its user's limit. */
enum counted {
	COUNTED_NOT,    /* the caller is not a user, or the loop is closing the stream */
	COUNTED,        /* the stream counts, and is in its entry's list `users` */
	COUNTED_BEFORE, /* not any more: a newer stream replaces it; in the list `giving_way` */
};

struct subscriber {
	struct hub *hub;
	struct stream *stream;
	struct branch *branch;
	struct subscriber *before;
	struct subscriber *next;

	enum counted counted; /* guarded by the hub's lock, like the next two members */
	struct subscriber *older;
	struct subscriber *newer;
};

/* A list of subscribers, oldest first, linked by `older` and `newer`. */
struct seniority {
	struct subscriber *oldest;
	struct subscriber *newest;
	size_t count;
};

struct branch {
	struct hub_entry *entry;
	struct outlet *outlet;
	/* the entry's next branch; guarded by the hub's lock, like the next four members */
	struct branch *next;
	struct branch *before_changed; /* links the outlet's list of changed branches */
	struct branch *next_changed;
	bool is_changed;
	size_t subscriber_count;

	struct subscriber *subscribers; /* used by the loop only, like the next two members */
	struct branch *next_taken;
	struct stream_event *taken; /* the value that the loop is offering to the subscribers */
};

struct hub_entry {
	struct hub_entry *next; /* the next entry in the same bucket */
	struct branch *branches;
	/* NULL if nothing has been published since the entry was created */
	struct stream_event *newest;
	int64_t retracted;      /* the highest version that was retracted, or 0 */
	struct seniority users; /* the streams opened with tokens of the user whose id is `key` */
	uint64_t hash;
	size_t key_len;
	char key[];
};

struct outlet {
	struct loop_task task;
	struct hub *hub;
	struct http_worker *worker;
	struct outlet *next;
	struct branch *changed;
	struct seniority giving_way; /* streams to be closed, because newer streams count instead */
	bool is_posted;
};

struct hub {
	size_t streams_per_user;
	pthread_mutex_t lock; /* guards everything below */
	struct hub_entry **buckets;
	size_t bucket_count; /* a power of two */
	size_t entry_count;
	struct outlet *outlets;
};

struct hub *hub_new(size_t streams_per_user)
{
	struct hub *hub = qp_calloc(1, sizeof(*hub));

	assert(streams_per_user > 0);
	hub->streams_per_user = streams_per_user;
	pthread_mutex_init(&hub->lock, NULL);
	hub->bucket_count = BUCKETS_LEAST;
	hub->buckets = qp_calloc(hub->bucket_count, sizeof(struct hub_entry *));
	return hub;
}

void hub_free(struct hub *hub)
{
	assert(hub->entry_count == 0);
	while (hub->outlets) {
		struct outlet *outlet = hub->outlets;

		assert(!outlet->is_posted);
		hub->outlets = outlet->next;
		free(outlet);
	}
	free(hub->buckets);
	pthread_mutex_destroy(&hub->lock);
	free(hub);
}

/* ---- entries, under the lock -------------------------------------------------------------- */

static struct hub_entry **bucket_of(struct hub *hub, uint64_t hash)
{
	return &hub->buckets[hash & (hub->bucket_count - 1)];
}

static struct hub_entry *find_entry(struct hub *hub, struct slice key, uint64_t hash)
{
	struct hub_entry *entry = *bucket_of(hub, hash);

	while (entry &&
		(entry->hash != hash || !slice_equal(slice_make(entry->key, entry->key_len), key)))
		entry = entry->next;
	return entry;
}

static void link_entry(struct hub *hub, struct hub_entry *entry)
{
	struct hub_entry **bucket = bucket_of(hub, entry->hash);

	entry->next = *bucket;
	*bucket = entry;
}

static void grow_buckets(struct hub *hub)
{
	struct hub_entry **old = hub->buckets;
	size_t old_count = hub->bucket_count;

	hub->bucket_count *= 2;
	hub->buckets = qp_calloc(hub->bucket_count, sizeof(struct hub_entry *));
	for (size_t i = 0; i < old_count; i++) {
		while (old[i]) {
			struct hub_entry *entry = old[i];

			old[i] = entry->next;
			link_entry(hub, entry);
		}
	}
	free(old);
}

static struct hub_entry *add_entry(struct hub *hub, struct slice key, uint64_t hash)
{
	struct hub_entry *entry = qp_calloc(1, sizeof(*entry) + key.len);

	entry->hash = hash;
	entry->key_len = key.len;
	if (key.len > 0)
		memcpy(entry->key, key.data, key.len);
	if (hub->entry_count++ >= hub->bucket_count)
		grow_buckets(hub);
	link_entry(hub, entry);
	return entry;
}

static void remove_entry(struct hub *hub, struct hub_entry *entry)
{
	struct hub_entry **link = bucket_of(hub, entry->hash);

	while (*link != entry)
		link = &(*link)->next;
	*link = entry->next;
	hub->entry_count--;
	stream_event_drop(entry->newest);
	free(entry);
}

/* ---- outlets and branches, under the lock -------------------------------------------------- */

static void run_outlet(struct loop_task *task);

static struct outlet *outlet_of(struct hub *hub, struct http_worker *worker)
{
	struct outlet *outlet = hub->outlets;

	while (outlet && outlet->worker != worker)
		outlet = outlet->next;
	if (outlet)
		return outlet;
	outlet = qp_calloc(1, sizeof(*outlet));
	outlet->task.run = run_outlet;
	outlet->hub = hub;
	outlet->worker = worker;
	outlet->next = hub->outlets;
	hub->outlets = outlet;
	return outlet;
}

static struct branch *branch_of(struct hub_entry *entry, struct outlet *outlet)
{
	struct branch *branch = entry->branches;

	while (branch && branch->outlet != outlet)
		branch = branch->next;
	if (branch)
		return branch;
	branch = qp_calloc(1, sizeof(*branch));
	branch->entry = entry;
	branch->outlet = outlet;
	branch->next = entry->branches;
	entry->branches = branch;
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
		branch->outlet->changed = branch->next_changed;
	if (branch->next_changed)
		branch->next_changed->before_changed = branch->before_changed;
}

static void remove_branch(struct hub *hub, struct branch *branch)
{
	struct hub_entry *entry = branch->entry;
	struct branch **link = &entry->branches;

	assert(!branch->subscribers && !branch->taken);
	forget_changed(branch);
	while (*link != branch)
		link = &(*link)->next;
	*link = branch->next;
	free(branch);
	if (!entry->branches)
		remove_entry(hub, entry);
}

/* ---- streams of one user, under the lock --------------------------------------------------- */

static void seniority_add(
	struct seniority *list, struct subscriber *subscriber, enum counted counted)
{
	subscriber->counted = counted;
	subscriber->newer = NULL;
	subscriber->older = list->newest;
	if (list->newest)
		list->newest->newer = subscriber;
	else
		list->oldest = subscriber;
	list->newest = subscriber;
	list->count++;
}

static void seniority_remove(struct seniority *list, struct subscriber *subscriber)
{
	if (subscriber->older)
		subscriber->older->newer = subscriber->newer;
	else
		list->oldest = subscriber->newer;
	if (subscriber->newer)
		subscriber->newer->older = subscriber->older;
	else
		list->newest = subscriber->older;
	list->count--;
	subscriber->counted = COUNTED_NOT;
}

static void post_outlet(struct outlet *outlet)
{
	if (!outlet->is_posted)
		loop_post(outlet->worker->loop, &outlet->task);
	outlet->is_posted = true;
}

/* Counts a stream that a user's token has opened. If the user already has as many streams as
 * allowed, puts the user's oldest stream on the list `giving_way` of that stream's outlet. The
 * outlet's loop then closes the oldest stream. */
static void count_user_stream(struct hub *hub, struct subscriber *subscriber)
{
	struct seniority *users = &subscriber->branch->entry->users;

	if (users->count == hub->streams_per_user) {
		struct subscriber *oldest = users->oldest;
		struct outlet *outlet = oldest->branch->outlet;

		seniority_remove(users, oldest);
		seniority_add(&outlet->giving_way, oldest, COUNTED_BEFORE);
		post_outlet(outlet);
	}
	seniority_add(users, subscriber, COUNTED);
}

static void uncount_stream(struct subscriber *subscriber)
{
	struct branch *branch = subscriber->branch;

	if (subscriber->counted == COUNTED)
		seniority_remove(&branch->entry->users, subscriber);
	else if (subscriber->counted == COUNTED_BEFORE)
		seniority_remove(&branch->outlet->giving_way, subscriber);
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
	pthread_mutex_lock(&hub->lock);
	uncount_stream(subscriber);
	free(subscriber);
	if (--branch->subscriber_count == 0)
		remove_branch(hub, branch);
	pthread_mutex_unlock(&hub->lock);
}

/* Subscribes the stream to `key`. Returns a reference to the newest value of `key`, or NULL if
 * there is no value. */
static struct stream_event *join_branch(
	struct subscriber *subscriber, const struct request *request, struct slice key)
{
	struct hub *hub = subscriber->hub;
	uint64_t hash = hash_bytes(key);
	struct stream_event *newest;
	struct hub_entry *entry;
	struct branch *branch;

	pthread_mutex_lock(&hub->lock);
	entry = find_entry(hub, key, hash);
	if (!entry)
		entry = add_entry(hub, key, hash);
	branch = subscriber->branch = branch_of(entry, outlet_of(hub, request->worker));
	branch->subscriber_count++;
	if (request->caller.kind == CALLER_USER)
		count_user_stream(hub, subscriber);
	newest = entry->newest ? stream_event_hold(entry->newest) : NULL;
	pthread_mutex_unlock(&hub->lock);
	subscriber->next = branch->subscribers;
	if (subscriber->next)
		subscriber->next->before = subscriber;
	branch->subscribers = subscriber;
	return newest;
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
	newest = join_branch(subscriber, request, key);
	if (newest)
		stream_offer_event(subscriber->stream, newest);
	stream_event_drop(newest);
	return subscriber->stream;
}

/* Takes the newest value of each changed branch. Returns the branches, linked by `next_taken`. */
static struct branch *take_changed(struct outlet *outlet)
{
	struct branch *taken = NULL;

	pthread_mutex_lock(&outlet->hub->lock);
	outlet->is_posted = false;
	while (outlet->changed) {
		struct branch *branch = outlet->changed;

		forget_changed(branch);
		branch->taken = stream_event_hold(branch->entry->newest);
		branch->next_taken = taken;
		taken = branch;
	}
	pthread_mutex_unlock(&outlet->hub->lock);
	return taken;
}

/* Takes the next stream off the list `giving_way` and returns it, or NULL if the list is empty. */
static struct stream *take_giving_way(struct outlet *outlet)
{
	struct stream *stream = NULL;
	struct subscriber *oldest;

	pthread_mutex_lock(&outlet->hub->lock);
	oldest = outlet->giving_way.oldest;
	if (oldest) {
		seniority_remove(&outlet->giving_way, oldest);
		stream = oldest->stream;
	}
	pthread_mutex_unlock(&outlet->hub->lock);
	return stream;
}

/* Runs on the outlet's loop: offers new values to streams, then closes the streams in the list
 * `giving_way`. Offering a value never closes a stream, so no branch is freed while values are
 * offered. */
static void run_outlet(struct loop_task *task)
{
	struct outlet *outlet = CONTAINER_OF(task, struct outlet, task);
	struct stream *stream;

	for (struct branch *branch = take_changed(outlet); branch; branch = branch->next_taken) {
		for (struct subscriber *one = branch->subscribers; one; one = one->next)
			stream_offer_event(one->stream, branch->taken);
		stream_event_drop(branch->taken);
		branch->taken = NULL;
	}
	while ((stream = take_giving_way(outlet)))
		stream_close(stream);
}

/* ---- publishing, any thread -------------------------------------------------------------- */

/* Adds the branch to its outlet's list of changed branches. The caller holds the hub's lock. */
static void note_changed(struct branch *branch)
{
	struct outlet *outlet = branch->outlet;

	if (branch->is_changed) {
		tally_add(&outlet->worker->events_skipped, (int64_t)branch->subscriber_count);
		return;
	}
	branch->is_changed = true;
	branch->before_changed = NULL;
	branch->next_changed = outlet->changed;
	if (outlet->changed)
		outlet->changed->before_changed = branch;
	outlet->changed = branch;
	post_outlet(outlet);
}

static void note_all_changed(struct hub_entry *entry)
{
	for (struct branch *branch = entry->branches; branch; branch = branch->next)
		note_changed(branch);
}

static int64_t newest_version(const struct hub_entry *entry)
{
	return entry->newest ? entry->newest->id : -1;
}

bool hub_publish(struct hub *hub, struct slice key, int64_t version, struct slice data)
{
	uint64_t hash = hash_bytes(key);
	struct hub_entry *entry;
	bool is_gone;

	pthread_mutex_lock(&hub->lock);
	entry = find_entry(hub, key, hash);
	is_gone = entry && version > 0 && version <= entry->retracted;
	if (entry && !is_gone && version > newest_version(entry)) {
		stream_event_drop(entry->newest);
		entry->newest = stream_event_new(version, data);
		note_all_changed(entry);
	}
	pthread_mutex_unlock(&hub->lock);
	return !is_gone;
}

void hub_retract(struct hub *hub, const struct hub_key *key, struct slice data)
{
	uint64_t hash = hash_bytes(key->key);
	struct hub_entry *entry;

	if (key->version == 0)
		return;
	pthread_mutex_lock(&hub->lock);
	entry = find_entry(hub, key->key, hash);
	if (entry && newest_version(entry) == key->version) {
		if (key->version > entry->retracted)
			entry->retracted = key->version;
		stream_event_drop(entry->newest);
		entry->newest = stream_event_new(0, data);
		note_all_changed(entry);
	}
	pthread_mutex_unlock(&hub->lock);
}

bool hub_wants(struct hub *hub, struct slice key)
{
	uint64_t hash = hash_bytes(key);
	bool wants;

	pthread_mutex_lock(&hub->lock);
	wants = find_entry(hub, key, hash) != NULL;
	pthread_mutex_unlock(&hub->lock);
	return wants;
}

size_t hub_keys(struct hub *hub, struct arena *arena, struct hub_key **keys)
{
	size_t count = 0;

	pthread_mutex_lock(&hub->lock);
	*keys = arena_array(arena, struct hub_key, hub->entry_count);
	for (size_t i = 0; i < hub->bucket_count; i++) {
		for (const struct hub_entry *entry = hub->buckets[i]; entry; entry = entry->next)
			(*keys)[count++] = (struct hub_key){
				arena_copy(arena, slice_make(entry->key, entry->key_len)),
				newest_version(entry),
			};
	}
	assert(count == hub->entry_count);
	pthread_mutex_unlock(&hub->lock);
	return count;
}

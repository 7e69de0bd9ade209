/*
 * Parked commands wait per key in a small hash table. The table belongs to one committer, so it
 * needs no lock. When a key is due, all its commands are removed together, which keeps their order.
 * A command whose deadline passes is removed alone, and the other commands of its key stay in
 * order. Few commands are ever parked, so the next due time is found by walking through the table.
 */
#include "flow/parking.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define BUCKETS 256

struct parked_key {
	struct parked_key *next; /* the next key in the same bucket */
	struct command_list commands;
	int64_t due_ns;
	int64_t expires_ns; /* the earliest deadline of its commands */
	size_t key_len;
	char key[]; /* a copy, because the command that has the key may be removed first */
};

struct parking {
	struct parked_key *buckets[BUCKETS];
	int64_t retry_ns;
	struct dice dice;
	struct tally count;
	size_t weight; /* the sum of the weights of all parked commands */
	size_t bytes;  /* the sum of the bytes of all parked commands */
};

struct parking *parking_new(int64_t retry_ns)
{
	struct parking *parking = qp_calloc(1, sizeof(*parking));

	assert(retry_ns > 0);
	parking->retry_ns = retry_ns;
	dice_init(&parking->dice);
	return parking;
}

void parking_free(struct parking *parking)
{
	assert(parking_count(parking) == 0);
	free(parking);
}

size_t parking_count(const struct parking *parking)
{
	return (size_t)tally_read(&parking->count);
}

size_t parking_weight(const struct parking *parking)
{
	return parking->weight;
}

size_t parking_bytes(const struct parking *parking)
{
	return parking->bytes;
}

static struct parked_key **bucket_of(const struct parking *parking, struct slice key)
{
	return (struct parked_key **)&parking->buckets[hash_bytes(key) % BUCKETS];
}

static struct parked_key *find(const struct parking *parking, struct slice key)
{
	struct parked_key *parked = *bucket_of(parking, key);

	while (parked && !slice_equal(slice_make(parked->key, parked->key_len), key))
		parked = parked->next;
	return parked;
}

static struct parked_key *add_key(struct parking *parking, struct slice key, int64_t now_ns)
{
	struct parked_key **bucket = bucket_of(parking, key);
	struct parked_key *parked = qp_calloc(1, sizeof(*parked) + key.len);
	uint64_t jitter = dice_below(&parking->dice, (uint64_t)parking->retry_ns + 1);

	parked->key_len = key.len;
	if (key.len > 0)
		memcpy(parked->key, key.data, key.len);
	parked->due_ns = now_ns + parking->retry_ns / 2 + (int64_t)jitter;
	parked->expires_ns = INT64_MAX;
	parked->next = *bucket;
	*bucket = parked;
	return parked;
}

static void push(struct parked_key *parked, struct command *command)
{
	command_list_push(&parked->commands, command);
	if (command->deadline_ns < parked->expires_ns)
		parked->expires_ns = command->deadline_ns;
}

void parking_add(struct parking *parking, struct command *command, struct slice key, int64_t now_ns)
{
	struct parked_key *parked = find(parking, key);

	if (!parked)
		parked = add_key(parking, key, now_ns);
	push(parked, command);
	tally_add(&parking->count, 1);
	parking->weight += command_weight(command);
	parking->bytes += command->bytes;
}

bool parking_has_key(const struct parking *parking, struct slice key)
{
	return parking_count(parking) > 0 && find(parking, key) != NULL;
}

int64_t parking_next_ns(const struct parking *parking)
{
	int64_t next_ns = INT64_MAX;

	if (parking_count(parking) == 0)
		return next_ns;
	for (size_t i = 0; i < BUCKETS; i++) {
		for (const struct parked_key *p = parking->buckets[i]; p; p = p->next) {
			int64_t first_ns = p->due_ns < p->expires_ns ? p->due_ns : p->expires_ns;

			next_ns = first_ns < next_ns ? first_ns : next_ns;
		}
	}
	return next_ns;
}

/* Moves the commands of `*link` to `out`, unlinks the key and frees it. */
static void take_key(struct parking *parking, struct parked_key **link, struct command_list *out)
{
	struct parked_key *parked = *link;

	*link = parked->next;
	tally_add(&parking->count, -(int64_t)parked->commands.count);
	parking->weight -= parked->commands.weight;
	parking->bytes -= parked->commands.bytes;
	command_list_append(out, &parked->commands);
	free(parked);
}

/* Moves to `out` the commands of `parked` whose deadlines have passed. The other commands keep
 * their order. */
static void sort_out_expired(struct parked_key *parked, struct command_list *out, int64_t now_ns)
{
	struct command_list all = parked->commands;
	struct command *command;

	parked->commands = (struct command_list){0};
	parked->expires_ns = INT64_MAX;
	while ((command = command_list_pop(&all))) {
		if (command->deadline_ns <= now_ns)
			command_list_push(out, command);
		else
			push(parked, command);
	}
}

void parking_take_expired(struct parking *parking, struct command_list *out, int64_t now_ns)
{
	if (parking_count(parking) == 0)
		return;
	for (size_t i = 0; i < BUCKETS; i++) {
		struct parked_key **link = &parking->buckets[i];

		while (*link) {
			struct parked_key *parked = *link;
			struct command_list before = parked->commands;

			if (parked->expires_ns <= now_ns)
				sort_out_expired(parked, out, now_ns);
			tally_add(
				&parking->count, (int64_t)(parked->commands.count - before.count));
			parking->weight -= before.weight - parked->commands.weight;
			parking->bytes -= before.bytes - parked->commands.bytes;
			if (parked->commands.count == 0)
				take_key(parking, link, out);
			else
				link = &parked->next;
		}
	}
}

static bool may_leave(const struct parked_key *parked, const struct command_list *out, size_t max,
	int64_t due_until_ns)
{
	return parked->due_ns <= due_until_ns &&
	       weight_fits(out->weight, parked->commands.weight, max);
}

static void take_until(
	struct parking *parking, struct command_list *out, size_t max, int64_t due_until_ns)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		struct parked_key **link = &parking->buckets[i];

		while (*link) {
			if (may_leave(*link, out, max, due_until_ns))
				take_key(parking, link, out);
			else
				link = &(*link)->next;
		}
	}
}

/* Returns the link to the key that is due first. At least one key must be parked. */
static struct parked_key **find_first_due(struct parking *parking)
{
	struct parked_key **first = NULL;

	for (size_t i = 0; i < BUCKETS; i++) {
		struct parked_key **link = &parking->buckets[i];

		for (; *link; link = &(*link)->next) {
			if (!first || (*link)->due_ns < (*first)->due_ns)
				first = link;
		}
	}
	return first;
}

/* Begins with the key that has been due longest; the other due keys follow in the order of the
 * buckets. If all keys were taken in that order, lighter keys in earlier buckets could use up `max`
 * each time, and a heavy key would wait until the deadlines of its commands pass. */
void parking_take_due(struct parking *parking, struct command_list *out, size_t max, int64_t now_ns)
{
	struct parked_key **first;

	if (parking_count(parking) == 0)
		return;
	first = find_first_due(parking);
	if (may_leave(*first, out, max, now_ns))
		take_key(parking, first, out);
	take_until(parking, out, max, now_ns);
}

void parking_take_all(struct parking *parking, struct command_list *out)
{
	take_until(parking, out, SIZE_MAX, INT64_MAX);
}

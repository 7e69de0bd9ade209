/*
 * Creates and changes the stream of each channel.
 *
 * An existing stream keeps the operator's settings, except that it must have our subjects, keep
 * messages for seven days and remember ids for ten minutes. If the server refuses to change the
 * stream, the bus uses the stream unchanged, provided that the stream has our subjects.
 */
#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/nats/nats_consuming.h"
#include "base/log.h"

#define MAX_AGE_NS (7 * 24 * 3600 * NS_PER_S)
#define DUPLICATES_NS (600 * NS_PER_S)

#define SUBJECT_SIZE (NATS_NAME_SIZE + 64)

/* ---- sequences --------------------------------------------------------------------------- */

void nats_channel_raise(struct nats_channel *channel, int64_t sequence)
{
	int64_t last = atomic_load(&channel->last);

	while (sequence > last && !atomic_compare_exchange_weak(&channel->last, &last, sequence))
		continue;
}

void nats_channel_lose(struct nats_channel *channel, int64_t sequence)
{
	int64_t lost = atomic_load(&channel->lost_from);

	while ((lost == 0 || sequence < lost) &&
		!atomic_compare_exchange_weak(&channel->lost_from, &lost, sequence))
		continue;
}

bool nats_channel_note(
	struct nats_channel *channel, int64_t floor, int64_t sequence, bool duplicate)
{
	if (sequence > floor) {
		nats_channel_raise(channel, sequence);
		return true;
	}
	if (duplicate)
		return true;
	atomic_store(&channel->last, sequence);
	atomic_store(&channel->lowered_ns, clock_steady_ns(&clock_system));
	nats_channel_lose(channel, sequence);
	return false;
}

/* ---- requests ---------------------------------------------------------------------------- */

static void call_api(struct nats_mailbox *mailbox, const char *verb,
	const struct nats_channel *channel, struct slice request, struct nats_answer *answer)
{
	char subject[SUBJECT_SIZE];

	snprintf(subject, sizeof(subject), "$JS.API.STREAM.%s.%s", verb, channel->stream);
	nats_api_call(mailbox, subject, request, NULL, answer);
}

/* ---- creating ---------------------------------------------------------------------------- */

static void write_config(struct buffer *out, const struct nats_channel *channel, int64_t replicas)
{
	buffer_format(out, "{\"name\":\"%s\",\"subjects\":[", channel->stream);
	for (size_t i = 0; i < channel->subject_count; i++) {
		if (i > 0)
			buffer_char(out, ',');
		buffer_json_string(out, channel->subjects[i]);
	}
	buffer_format(out,
		"],\"retention\":\"limits\",\"storage\":\"file\",\"discard\":\"old\","
		"\"num_replicas\":%lld,\"max_age\":%lld,\"duplicate_window\":%lld}",
		(long long)replicas, MAX_AGE_NS, DUPLICATES_NS);
}

static bool create(struct nats_bus *bus, struct nats_mailbox *mailbox, struct nats_channel *channel,
	char *why, size_t size)
{
	struct arena arena;
	struct buffer request;
	struct nats_answer answer;
	bool created;

	arena_init(&arena, 1024);
	request = buffer_make(&arena, 512);
	write_config(&request, channel, bus->url.replicas);
	call_api(mailbox, "CREATE", channel, buffer_slice(&request), &answer);
	arena_release(&arena);
	created = answer.error == 0;
	if (created)
		log_line(LOG_INFO, "bus", "%s: created stream %s", bus->base.name, channel->stream);
	else
		snprintf(why, size, "the stream %s cannot be created: %s", channel->stream,
			answer.words);
	nats_answer_release(&answer);
	return created;
}

/* ---- changing ---------------------------------------------------------------------------- */

static bool is_covered(const json_t *subjects, struct slice subject)
{
	for (size_t i = 0; i < json_array_size(subjects); i++) {
		const char *pattern = json_string_value(json_array_get(subjects, i));

		if (pattern && nats_subject_covers(slice_of(pattern), subject))
			return true;
	}
	return false;
}

static bool covers_all(const json_t *config, const struct nats_channel *channel)
{
	const json_t *subjects = json_object_get(config, "subjects");

	for (size_t i = 0; i < channel->subject_count; i++) {
		if (!is_covered(subjects, channel->subjects[i]))
			return false;
	}
	return true;
}

/* Adds those of our subjects that no existing subject covers. A stream's subjects must not overlap,
 * so the function removes existing subjects that an added subject covers. */
static void add_subjects(json_t *config, const struct nats_channel *channel)
{
	json_t *subjects = json_object_get(config, "subjects");
	json_t *wanted = json_array();

	for (size_t i = 0; i < channel->subject_count; i++) {
		if (!is_covered(subjects, channel->subjects[i]))
			json_array_append_new(wanted,
				json_stringn(channel->subjects[i].data, channel->subjects[i].len));
	}
	for (size_t i = 0; i < json_array_size(subjects); i++) {
		json_t *old = json_array_get(subjects, i);
		const char *text = json_string_value(old);

		if (text && !is_covered(wanted, slice_of(text)))
			json_array_append(wanted, old);
	}
	json_object_set_new(config, "subjects", wanted);
}

/* Changes `config` to what the bus requires of a stream. Returns false if nothing has to change. */
static bool change_config(json_t *config, const struct nats_channel *channel)
{
	bool covered = covers_all(config, channel);

	if (covered && nats_json_int(config, "max_age") == MAX_AGE_NS &&
		nats_json_int(config, "duplicate_window") == DUPLICATES_NS)
		return false;
	if (!covered)
		add_subjects(config, channel);
	json_object_set_new(config, "max_age", json_integer(MAX_AGE_NS));
	json_object_set_new(config, "duplicate_window", json_integer(DUPLICATES_NS));
	return true;
}

/* Returns true if the stream can be used although the server refused to change it. */
static bool accept_refusal(struct nats_bus *bus, struct nats_channel *channel, bool usable,
	const struct nats_answer *answer, char *why, size_t size)
{
	if (answer->error < 0 || !usable) {
		snprintf(why, size, "the stream %s cannot be changed: %s", channel->stream,
			answer->words);
		return false;
	}
	if (!channel->refused)
		log_line(LOG_WARN, "bus",
			"%s: stream %s stays unchanged, because the server refused to change it: "
			"%s",
			bus->base.name, channel->stream, answer->words);
	channel->refused = true;
	return true;
}

static bool update(struct nats_bus *bus, struct nats_mailbox *mailbox, struct nats_channel *channel,
	json_t *config, char *why, size_t size)
{
	bool usable = covers_all(config, channel);
	struct nats_answer answer;
	char *request;
	bool done;

	if (!change_config(config, channel))
		return true;
	request = json_dumps(config, JSON_COMPACT);
	assert(request);
	call_api(mailbox, "UPDATE", channel, slice_of(request), &answer);
	free(request);
	done = answer.error == 0;
	if (done)
		log_line(LOG_INFO, "bus", "%s: changed stream %s", bus->base.name, channel->stream);
	else
		done = accept_refusal(bus, channel, usable, &answer, why, size);
	nats_answer_release(&answer);
	return done;
}

/* ---- preparing --------------------------------------------------------------------------- */

static bool prepare(struct nats_bus *bus, struct nats_mailbox *mailbox,
	struct nats_channel *channel, char *why, size_t size)
{
	struct nats_answer answer;
	bool done = false;

	call_api(mailbox, "INFO", channel, slice_of(""), &answer);
	if (answer.error == 0)
		done = update(
			bus, mailbox, channel, json_object_get(answer.body, "config"), why, size);
	else if (answer.error == JSStreamNotFoundErr)
		done = create(bus, mailbox, channel, why, size);
	else
		snprintf(why, size, "%s", answer.words);
	nats_answer_release(&answer);
	return done;
}

/* ---- comparing groups with their stream -------------------------------------------------- */

/* The declared groups of a channel, and how far each has read. */
struct comparison {
	struct nats_comparing base;
	const struct bus_channel *declared;
	int64_t *delivered; /* for each group, the sequence of the last message delivered to it */
	int64_t lost_from;  /* the first lost sequence; 0 if no loss is known */
};

static struct nats_durable durable_of(const struct comparison *comparison, size_t group)
{
	return (struct nats_durable){.stream = comparison->base.channel->stream,
		.name = comparison->declared->groups[group].name};
}

static bool read_groups(struct comparison *comparison)
{
	for (size_t i = 0; i < comparison->declared->group_count; i++) {
		const struct nats_durable durable = durable_of(comparison, i);

		if (!nats_durable_delivered(&durable, &comparison->base, &comparison->delivered[i]))
			return false;
	}
	return true;
}

/* The stream now ends at `last`: a group that has read beyond it has read lost messages. */
static void find_loss(struct comparison *comparison, int64_t last)
{
	bool beyond = false;

	for (size_t i = 0; i < comparison->declared->group_count; i++)
		beyond = beyond || comparison->delivered[i] > last;
	if (beyond && (comparison->lost_from == 0 || comparison->lost_from > last + 1))
		comparison->lost_from = last + 1;
}

static bool read_end(struct comparison *comparison)
{
	struct nats_channel *channel = comparison->base.channel;
	int64_t known = atomic_load(&channel->last), last;
	struct nats_answer answer;
	bool done;

	call_api(comparison->base.mailbox, "INFO", channel, slice_of(""), &answer);
	done = answer.error == 0;
	last = nats_json_int(json_object_get(answer.body, "state"), "last_seq");
	if (!done)
		snprintf(comparison->base.why, comparison->base.why_size, "%s", answer.words);
	nats_answer_release(&answer);
	if (!done)
		return false;
	find_loss(comparison, last);
	/* keeps what another thread has noted since `known` was read */
	if (last >= known)
		nats_channel_raise(channel, last);
	else if (atomic_compare_exchange_strong(&channel->last, &known, last))
		atomic_store(&channel->lowered_ns, clock_steady_ns(&clock_system));
	return true;
}

static bool restart_groups(const struct comparison *comparison)
{
	for (size_t i = 0; i < comparison->declared->group_count; i++) {
		const struct nats_durable durable = durable_of(comparison, i);

		if (comparison->lost_from > 0 &&
			comparison->delivered[i] >= comparison->lost_from &&
			!nats_durable_restart(&durable, &comparison->base))
			return false;
	}
	return true;
}

/*
 * Restarts the groups that have read lost messages; see nats_durable_restart().
 *
 * The order matters. The groups are read before the stream, so that messages published and consumed
 * in the meantime never look like a loss. All groups are read before the end of the stream becomes
 * channel->last, because messages published after that get the lost sequences unnoticed, and soon
 * no group is beyond the end any more. `lost_from` is taken before the groups are read; a loss that
 * a producer notices later is left for the next comparison.
 */
static bool compare_groups(struct nats_bus *bus, struct nats_mailbox *mailbox,
	struct nats_channel *channel, char *why, size_t size)
{
	struct comparison comparison = {.base = {bus, channel, mailbox, why, size},
		.declared = bus_channel_find(
			bus->declared, bus->channel_count, slice_of(channel->name)),
		.lost_from = atomic_exchange(&channel->lost_from, 0)};
	bool done;

	comparison.delivered =
		qp_calloc(comparison.declared->group_count, sizeof(comparison.delivered[0]));
	done = read_groups(&comparison) && read_end(&comparison) && restart_groups(&comparison);
	if (!done && comparison.lost_from > 0)
		nats_channel_lose(channel, comparison.lost_from);
	free(comparison.delivered);
	return done;
}

bool nats_streams_prepare(
	struct nats_bus *bus, struct nats_mailbox *mailbox, char *why, size_t size)
{
	for (size_t i = 0; i < bus->channel_count; i++) {
		if (!prepare(bus, mailbox, &bus->channels[i], why, size) ||
			!compare_groups(bus, mailbox, &bus->channels[i], why, size))
			return false;
	}
	return true;
}

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

bool nats_channel_note(struct nats_channel *channel, int64_t floor, int64_t sequence)
{
	int64_t last = atomic_load(&channel->last), lost = atomic_load(&channel->lost_from);

	if (sequence > floor) {
		while (sequence > last &&
			!atomic_compare_exchange_weak(&channel->last, &last, sequence))
			continue;
		return true;
	}
	atomic_store(&channel->last, sequence);
	while ((lost == 0 || sequence < lost) &&
		!atomic_compare_exchange_weak(&channel->lost_from, &lost, sequence))
		continue;
	return false;
}

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

static bool compare_groups(struct nats_bus *bus, struct nats_mailbox *mailbox,
	struct nats_channel *channel, char *why, size_t size)
{
	const struct bus_channel *declared =
		bus_channel_find(bus->declared, bus->channel_count, slice_of(channel->name));
	int64_t lost_from = atomic_load(&channel->lost_from);

	for (size_t i = 0; i < declared->group_count; i++) {
		const struct nats_durable durable = {
			.stream = channel->stream, .name = declared->groups[i].name};

		if (!nats_durable_compare(&durable, channel, bus, mailbox, why, size))
			return false;
	}
	atomic_compare_exchange_strong(&channel->lost_from, &lost_from, 0);
	return true;
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

/* The names of a channel's stream and subjects, and how the server matches subjects. */
#include <stdio.h>

#include "adapters/bus/nats/nats_internal.h"

#define SHOWN(slice) (int)((slice).len < 64 ? (slice).len : 64), (slice).data

static bool is_letter_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool nats_name_is_valid(struct slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		if (!is_letter_or_digit(name.data[i]) && name.data[i] != '-' && name.data[i] != '_')
			return false;
	}
	return name.len > 0 && name.len < NATS_NAME_SIZE;
}

static bool is_token(struct slice token)
{
	for (size_t i = 0; i < token.len; i++) {
		unsigned char c = (unsigned char)token.data[i];

		if (c <= ' ' || c == 0x7f)
			return false;
	}
	return token.len > 0;
}

static bool is_wildcard(struct slice token)
{
	return slice_is(token, "*") || slice_is(token, ">");
}

bool nats_subject_is_plain(struct slice subject)
{
	struct slice rest = subject;

	if (subject.len == 0)
		return false;
	while (rest.data) {
		struct slice token = slice_cut(&rest, '.');

		if (!is_token(token) || is_wildcard(token))
			return false;
	}
	return true;
}

/* Returns true if `pattern` is a valid subject. It may have wildcards, but > only as its last
 * token. */
static bool is_pattern(struct slice pattern)
{
	struct slice rest = pattern;

	if (pattern.len == 0)
		return false;
	while (rest.data) {
		struct slice token = slice_cut(&rest, '.');

		if (!is_token(token) || (slice_is(token, ">") && rest.data))
			return false;
	}
	return true;
}

bool nats_subject_covers(struct slice pattern, struct slice subject)
{
	while (pattern.data && subject.data) {
		struct slice ours = slice_cut(&pattern, '.');
		struct slice theirs = slice_cut(&subject, '.');

		if (slice_is(ours, ">"))
			return true;
		if (slice_is(theirs, ">"))
			return false;
		if (!slice_is(ours, "*") && !slice_equal(ours, theirs))
			return false;
	}
	return !pattern.data && !subject.data;
}

/* ---- channels ---------------------------------------------------------------------------- */

static void name_stream(struct nats_channel *channel, const struct bus_channel *from)
{
	const char *source = from->stream ? from->stream : from->name;
	size_t len = 0;

	for (; *source && len < sizeof(channel->stream) - 1; source++) {
		char c = *source;

		if (!from->stream && (c == '.' || c == '-'))
			c = '_';
		else if (!from->stream && c >= 'a' && c <= 'z')
			c = (char)(c - 'a' + 'A');
		channel->stream[len++] = c;
	}
	/* a name that is too long becomes empty, which is invalid */
	channel->stream[*source ? 0 : len] = '\0';
}

static bool add_subjects(struct nats_channel *channel, struct slice list)
{
	while (list.data) {
		struct slice subject = slice_cut(&list, ' ');

		if (subject.len == 0)
			continue;
		if (!is_pattern(subject) || channel->subject_count == NATS_SUBJECTS_MAX)
			return false;
		channel->subjects[channel->subject_count++] = subject;
	}
	return channel->subject_count > 0;
}

/* Returns true if every group wants either one subject without wildcards, or all subjects: before
 * version 2.10, the server can filter a durable only by a single subject. */
static bool groups_can_be_filtered(const struct bus_channel *from)
{
	for (size_t i = 0; i < from->group_count; i++) {
		const char *subjects = from->groups[i].subjects;

		if (subjects && !nats_subject_is_plain(slice_of(subjects)))
			return false;
	}
	return true;
}

bool nats_channel_init(
	struct nats_channel *channel, const struct bus_channel *from, char *why, size_t size)
{
	memset(channel, 0, sizeof(*channel));
	channel->name = from->name;
	name_stream(channel, from);
	if (nats_name_is_valid(slice_of(channel->stream)) && groups_can_be_filtered(from) &&
		add_subjects(channel, slice_of(from->subjects ? from->subjects : from->name)))
		return true;
	snprintf(why, size,
		"the channel %.*s cannot be a JetStream stream: one of its names or subjects is "
		"not valid there",
		SHOWN(slice_of(from->name)));
	return false;
}

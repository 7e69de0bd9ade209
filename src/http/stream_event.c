#include "http/stream_event.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"

#define ID_LINE_MAX 32 /* room for "id: ", 19 digits and a line break */

static const struct slice data_prefix = SLICE("data: ");

static bool is_break(char c)
{
	return c == '\n' || c == '\r';
}

/* Cuts a line off `*rest`, at any line break that clients recognise. Returns false if there is no
 * further line. */
static bool cut_line(struct slice *rest, struct slice *line)
{
	size_t end = 0, next;

	if (!rest->data)
		return false;
	while (end < rest->len && !is_break(rest->data[end]))
		end++;
	*line = slice_make(rest->data, end);
	if (end == rest->len) {
		*rest = (struct slice){0};
		return true;
	}
	next = end + 1;
	if (rest->data[end] == '\r' && next < rest->len && rest->data[next] == '\n')
		next++;
	*rest = slice_make(rest->data + next, rest->len - next);
	return true;
}

static size_t most_bytes(struct slice data)
{
	size_t lines = 1;

	for (size_t i = 0; i < data.len; i++)
		lines += is_break(data.data[i]);
	return ID_LINE_MAX + data.len + lines * (data_prefix.len + 1) + 1;
}

static void append(struct stream_event *event, struct slice text)
{
	if (text.len > 0)
		memcpy(event->bytes + event->len, text.data, text.len);
	event->len += text.len;
}

struct stream_event *stream_event_new(int64_t id, struct slice data)
{
	struct slice rest = data.data ? data : slice_of(""), line;
	struct stream_event *event = qp_malloc(sizeof(*event) + most_bytes(data));

	assert(id >= 0);
	atomic_init(&event->holders, 1);
	event->id = id;
	event->len = (size_t)snprintf(event->bytes, ID_LINE_MAX, "id: %lld\n", (long long)id);
	while (cut_line(&rest, &line)) {
		append(event, data_prefix);
		append(event, line);
		append(event, slice_of("\n"));
	}
	append(event, slice_of("\n"));
	return event;
}

struct stream_event *stream_event_of(struct slice bytes)
{
	struct stream_event *event = qp_malloc(sizeof(*event) + bytes.len);

	atomic_init(&event->holders, 1);
	event->id = -1;
	event->len = 0;
	append(event, bytes);
	return event;
}

struct stream_event *stream_event_hold(struct stream_event *event)
{
	atomic_fetch_add_explicit(&event->holders, 1, memory_order_relaxed);
	return event;
}

void stream_event_drop(struct stream_event *event)
{
	if (event && atomic_fetch_sub_explicit(&event->holders, 1, memory_order_acq_rel) == 1)
		free(event);
}

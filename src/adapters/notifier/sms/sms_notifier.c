/*
 * The notifier's send() only collects lines; the next wait() writes all of these lines, so that
 * many notices cost only a few system calls.
 *
 * A pipe that nobody reads fills up, and a write to it would block for ever. So every write waits
 * until the pipe has room for PIPE_BUF bytes and writes no more than that, and wait() stops writing
 * after LONGEST_NS. If a line was not written completely, its notice counts as failed, and the
 * caller's retry writes the whole line again. To avoid torn lines, each write ends at the end of a
 * line if possible. If wait() had to stop inside a line, the next output begins with a line break.
 */
#include "adapters/notifier/sms/sms_notifier.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/steady.h"
#include "base/text.h"

#define SLOTS 256
#define LONGEST_NS NS_PER_S

struct sms_console {
	struct notifier base;
	struct notice_result results[SLOTS]; /* results that wait() has not returned yet */
	size_t ends[SLOTS];                  /* where the line of each result ends in `page` */
	size_t count;
	struct arena arena; /* memory of the lines */
	struct buffer page; /* lines that are not written yet */
	bool is_torn;       /* the last write ended inside a line */

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t changed;
	bool woken;
};

static const struct notifier_ops notifier_ops;

static struct sms_console *console_of(struct notifier *notifier)
{
	assert(notifier->ops == &notifier_ops);
	return (struct sms_console *)notifier;
}

static size_t console_free_slots(struct notifier *base)
{
	return SLOTS - console_of(base)->count;
}

static struct slice member(const json_t *event, const char *name)
{
	const json_t *value = json_object_get(event, name);

	return slice_make(json_string_value(value), json_string_length(value));
}

static void add_line(struct buffer *page, const json_t *event)
{
	buffer_text(page, "SMS SENT userId=");
	text_escape_log(page, member(event, "userId"));
	buffer_text(page, " message=");
	text_escape_log(page, member(event, "message"));
	buffer_char(page, '\n');
}

static void console_send(struct notifier *base, const struct notice *notice)
{
	struct sms_console *console = console_of(base);
	char why[JSON_WHY_SIZE];
	json_t *event = json_parse_event(notice->body, why);
	size_t at = console->count++;
	struct notice_result *result = &console->results[at];

	assert(at < SLOTS);
	*result = (struct notice_result){.tag = notice->tag, .fate = NOTICE_SENT};
	if (event) {
		add_line(&console->page, event);
	} else {
		result->fate = NOTICE_REFUSED;
		snprintf(result->error, sizeof(result->error), "the body cannot be read");
	}
	console->ends[at] = console->page.len;
	json_decref(event);
}

/* Waits until a write of PIPE_BUF bytes would not block, and returns true; the write may still
 * fail. If monotonic time reaches `until_ns` first, sets errno and returns false. */
static bool wait_for_room(int64_t until_ns)
{
	struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};

	for (;;) {
		int64_t left_ns = until_ns - clock_steady_ns(&clock_system);
		int ready = poll(&output, 1, left_ns > 0 ? (int)(left_ns / NS_PER_MS) + 1 : 0);

		if (ready > 0 || (ready < 0 && errno != EINTR))
			return true;
		if (ready == 0) {
			errno = ETIMEDOUT;
			return false;
		}
	}
}

/* Returns how many bytes to write at once: as many whole lines as fit into PIPE_BUF bytes. If even
 * the first line is longer, returns PIPE_BUF. */
static size_t chunk_of(struct slice text)
{
	const char *end;

	if (text.len <= PIPE_BUF)
		return text.len;
	end = memrchr(text.data, '\n', PIPE_BUF);
	return end ? (size_t)(end - text.data) + 1 : PIPE_BUF;
}

/* Writes the text to standard output and returns how many bytes were written. If that is not the
 * whole text, errno says why. */
static size_t write_lines(struct slice text)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + LONGEST_NS;
	size_t done = 0;

	while (done < text.len && wait_for_room(until_ns)) {
		struct slice rest = slice_make(text.data + done, text.len - done);
		ssize_t written = write(STDOUT_FILENO, rest.data, chunk_of(rest));

		if (written > 0)
			done += (size_t)written;
		else if (written == 0 || errno != EINTR)
			break;
	}
	return done;
}

/* Sets the fate FAILED for each notice whose line ends beyond the first `written` bytes of the
 * page. When this function is called, errno must say why the rest was not written. */
static void fail_unwritten(struct sms_console *console, size_t written)
{
	const char *why = errno == ETIMEDOUT ? "nobody reads it" : strerror(errno);

	for (size_t i = 0; i < console->count; i++) {
		struct notice_result *result = &console->results[i];

		if (result->fate != NOTICE_SENT || console->ends[i] <= written)
			continue;
		result->fate = NOTICE_FAILED;
		result->is_unreachable = true;
		snprintf(result->error, sizeof(result->error),
			"cannot write to standard output: %s", why);
	}
}

static void flush(struct sms_console *console)
{
	size_t written = write_lines(buffer_slice(&console->page));

	if (written < console->page.len)
		fail_unwritten(console, written);
	if (written > 0)
		console->is_torn = console->page.data[written - 1] != '\n';
	arena_reset(&console->arena);
	console->page = buffer_make(&console->arena, 4096);
	if (console->is_torn)
		buffer_char(&console->page, '\n');
}

/* Waits until wake() is called or monotonic time reaches `until_ns`. Does not wait if wait() has
 * results to return. */
static void wait_until_woken(struct sms_console *console, int64_t until_ns)
{
	bool in_time = true;

	pthread_mutex_lock(&console->lock);
	while (console->count == 0 && !console->woken && in_time)
		in_time = steady_wait_until(&console->changed, &console->lock, until_ns);
	console->woken = false;
	pthread_mutex_unlock(&console->lock);
}

static size_t console_wait(
	struct notifier *base, struct notice_result *results, size_t max, int64_t until_ns)
{
	struct sms_console *console = console_of(base);
	size_t count;

	assert(max >= SLOTS);
	if (console->count > 0)
		flush(console);
	wait_until_woken(console, until_ns);
	count = console->count;
	memcpy(results, console->results, count * sizeof(*results));
	console->count = 0;
	return count;
}

static void console_wake(struct notifier *base)
{
	struct sms_console *console = console_of(base);

	pthread_mutex_lock(&console->lock);
	console->woken = true;
	pthread_cond_signal(&console->changed);
	pthread_mutex_unlock(&console->lock);
}

static void console_free(struct notifier *base)
{
	struct sms_console *console = console_of(base);

	pthread_cond_destroy(&console->changed);
	pthread_mutex_destroy(&console->lock);
	arena_release(&console->arena);
	free(console);
}

static const struct notifier_ops notifier_ops = {
	.free_slots = console_free_slots,
	.send = console_send,
	.wait = console_wait,
	.wake = console_wake,
	.free = console_free,
};

struct notifier *sms_console_new(void)
{
	struct sms_console *console = qp_calloc(1, sizeof(*console));

	console->base.ops = &notifier_ops;
	console->base.engine = "console";
	console->base.slots = SLOTS;
	console->base.longest_ns = LONGEST_NS;
	arena_init(&console->arena, 64 * 1024);
	console->page = buffer_make(&console->arena, 4096);
	pthread_mutex_init(&console->lock, NULL);
	steady_cond_init(&console->changed);
	return &console->base;
}

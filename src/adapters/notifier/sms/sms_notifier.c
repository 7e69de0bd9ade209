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

struct sms_notifier {
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

static struct sms_notifier *sms_of(struct notifier *notifier)
{
	assert(notifier->ops == &notifier_ops);
	return (struct sms_notifier *)notifier;
}

static size_t sms_free_slots(struct notifier *base)
{
	return SLOTS - sms_of(base)->count;
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

static void sms_send(struct notifier *base, const struct notice *notice)
{
	struct sms_notifier *sms = sms_of(base);
	char why[JSON_WHY_SIZE];
	json_t *event = json_parse_event(notice->body, why);
	size_t at = sms->count++;
	struct notice_result *result = &sms->results[at];

	assert(at < SLOTS);
	*result = (struct notice_result){.tag = notice->tag, .fate = NOTICE_SENT};
	if (event) {
		add_line(&sms->page, event);
	} else {
		result->fate = NOTICE_REFUSED;
		snprintf(result->error, sizeof(result->error), "the body cannot be read");
	}
	sms->ends[at] = sms->page.len;
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
static void fail_unwritten(struct sms_notifier *sms, size_t written)
{
	const char *why = errno == ETIMEDOUT ? "nobody reads it" : strerror(errno);

	for (size_t i = 0; i < sms->count; i++) {
		struct notice_result *result = &sms->results[i];

		if (result->fate != NOTICE_SENT || sms->ends[i] <= written)
			continue;
		result->fate = NOTICE_FAILED;
		result->is_unreachable = true;
		snprintf(result->error, sizeof(result->error),
			"cannot write to standard output: %s", why);
	}
}

static void flush(struct sms_notifier *sms)
{
	size_t written = write_lines(buffer_slice(&sms->page));

	if (written < sms->page.len)
		fail_unwritten(sms, written);
	if (written > 0)
		sms->is_torn = sms->page.data[written - 1] != '\n';
	arena_reset(&sms->arena);
	sms->page = buffer_make(&sms->arena, 4096);
	if (sms->is_torn)
		buffer_char(&sms->page, '\n');
}

/* Waits until wake() is called or monotonic time reaches `until_ns`. Does not wait if wait() has
 * results to return. */
static void wait_until_woken(struct sms_notifier *sms, int64_t until_ns)
{
	bool in_time = true;

	pthread_mutex_lock(&sms->lock);
	while (sms->count == 0 && !sms->woken && in_time)
		in_time = steady_wait_until(&sms->changed, &sms->lock, until_ns);
	sms->woken = false;
	pthread_mutex_unlock(&sms->lock);
}

static size_t sms_wait(
	struct notifier *base, struct notice_result *results, size_t max, int64_t until_ns)
{
	struct sms_notifier *sms = sms_of(base);
	size_t count;

	assert(max >= SLOTS);
	if (sms->count > 0)
		flush(sms);
	wait_until_woken(sms, until_ns);
	count = sms->count;
	memcpy(results, sms->results, count * sizeof(*results));
	sms->count = 0;
	return count;
}

static void sms_wake(struct notifier *base)
{
	struct sms_notifier *sms = sms_of(base);

	pthread_mutex_lock(&sms->lock);
	sms->woken = true;
	pthread_cond_signal(&sms->changed);
	pthread_mutex_unlock(&sms->lock);
}

static void sms_free(struct notifier *base)
{
	struct sms_notifier *sms = sms_of(base);

	pthread_cond_destroy(&sms->changed);
	pthread_mutex_destroy(&sms->lock);
	arena_release(&sms->arena);
	free(sms);
}

static const struct notifier_ops notifier_ops = {
	.free_slots = sms_free_slots,
	.send = sms_send,
	.wait = sms_wait,
	.wake = sms_wake,
	.free = sms_free,
};

struct notifier *sms_notifier_new(void)
{
	struct sms_notifier *sms = qp_calloc(1, sizeof(*sms));

	sms->base.ops = &notifier_ops;
	sms->base.engine = "console";
	sms->base.slots = SLOTS;
	sms->base.longest_ns = LONGEST_NS;
	arena_init(&sms->arena, 64 * 1024);
	sms->page = buffer_make(&sms->arena, 4096);
	pthread_mutex_init(&sms->lock, NULL);
	steady_cond_init(&sms->changed);
	return &sms->base;
}

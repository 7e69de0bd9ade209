#include "adapters/notifier/webhook/webhook_notifier.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "adapters/notifier/webhook/webhook_slot.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"

#define SLOTS_DEFAULT 64
#define TOTAL_DEFAULT_NS (10 * NS_PER_S)
#define CONNECT_MAX_MS 5000
#define POLL_MAX_MS 60000

/* What a thread that has a lot to do may add to the time of a notice. */
#define SLACK_NS NS_PER_S

struct webhook_channel {
	struct channel base;
	CURLM *multi;
	char *url;
	struct slot_settings settings;
	atomic_bool woken;

	struct webhook_slot *slots;
	struct webhook_slot *free;
	size_t free_count;
	struct webhook_slot *settled; /* whose results are not handed out yet */
};

static const struct channel_ops channel_ops;

static struct webhook_channel *channel_of(struct channel *channel)
{
	assert(channel->ops == &channel_ops);
	return (struct webhook_channel *)channel;
}

/* Only for want of memory, or by a mistake of ours. */
static void must(CURLMcode code)
{
	if (code == CURLM_OK)
		return;
	log_line(LOG_ERROR, "notify", "libcurl: %s", curl_multi_strerror(code));
	abort();
}

/* ---- lists of slots ---------------------------------------------------------------------- */

static void push(struct webhook_slot **list, struct webhook_slot *slot)
{
	slot->next = *list;
	*list = slot;
}

static struct webhook_slot *pop(struct webhook_slot **list)
{
	struct webhook_slot *slot = *list;

	assert(slot);
	*list = slot->next;
	slot->next = NULL;
	return slot;
}

/* ---- operations -------------------------------------------------------------------------- */

static size_t channel_free_slots(struct channel *base)
{
	return channel_of(base)->free_count;
}

static void channel_send(struct channel *base, const struct notice *notice)
{
	struct webhook_channel *channel = channel_of(base);
	struct webhook_slot *slot = pop(&channel->free);

	assert(channel->free_count > 0);
	channel->free_count--;
	if (slot_load(slot, notice))
		must(curl_multi_add_handle(channel->multi, slot->easy));
	else
		push(&channel->settled, slot);
}

/* Lets libcurl read and write what it can, and settles what has ended. */
static void advance(struct webhook_channel *channel)
{
	CURLMsg *message;
	int number;

	must(curl_multi_perform(channel->multi, &number));
	while ((message = curl_multi_info_read(channel->multi, &number))) {
		struct webhook_slot *slot = slot_of(message->easy_handle);
		CURLcode code = message->data.result;

		assert(message->msg == CURLMSG_DONE);
		must(curl_multi_remove_handle(channel->multi, slot->easy));
		slot_settle(slot, code);
		push(&channel->settled, slot);
	}
}

static size_t hand_out(struct webhook_channel *channel, struct notice_result *results, size_t max)
{
	size_t count = 0;

	while (channel->settled && count < max) {
		struct webhook_slot *slot = pop(&channel->settled);

		results[count++] = slot->result;
		push(&channel->free, slot);
		channel->free_count++;
	}
	return count;
}

static int ms_until(int64_t until_ns)
{
	int64_t left_ns = until_ns - clock_steady_ns(&clock_system);

	if (left_ns <= 0)
		return 0;
	if (left_ns >= POLL_MAX_MS * NS_PER_MS)
		return POLL_MAX_MS;
	return (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static size_t channel_wait(
	struct channel *base, struct notice_result *results, size_t max, int64_t until_ns)
{
	struct webhook_channel *channel = channel_of(base);
	bool woken;
	int left_ms;

	assert(max > 0);
	for (;;) {
		advance(channel);
		woken = atomic_exchange(&channel->woken, false);
		left_ms = ms_until(until_ns);
		if (channel->settled || woken || left_ms == 0)
			return hand_out(channel, results, max);
		must(curl_multi_poll(channel->multi, NULL, 0, left_ms, NULL));
	}
}

static void channel_wake(struct channel *base)
{
	struct webhook_channel *channel = channel_of(base);

	atomic_store(&channel->woken, true);
	curl_multi_wakeup(channel->multi);
}

static void channel_free(struct channel *base)
{
	struct webhook_channel *channel = channel_of(base);

	for (size_t i = 0; i < base->slots; i++) {
		/* Nothing happens to a handle that is not on its way. */
		must(curl_multi_remove_handle(channel->multi, channel->slots[i].easy));
		slot_release(&channel->slots[i]);
	}
	must(curl_multi_cleanup(channel->multi));
	free(channel->slots);
	free(channel->url);
	free(channel);
}

static const struct channel_ops channel_ops = {
	.free_slots = channel_free_slots,
	.send = channel_send,
	.wait = channel_wait,
	.wake = channel_wake,
	.free = channel_free,
};

/* ---- making one -------------------------------------------------------------------------- */

static void init_libcurl(void)
{
	CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);

	assert(code == CURLE_OK);
	(void)code;
}

/* What follows http:// or https://, NULL: the URL begins with neither. */
static const char *skip_scheme(const char *url)
{
	if (strncasecmp(url, "http://", 7) == 0)
		return url + 7;
	return strncasecmp(url, "https://", 8) == 0 ? url + 8 : NULL;
}

/* What is wrong with the URL, NULL: nothing. libcurl alone would take http:/a and http:///a too. */
static const char *find_problem(const char *url)
{
	const char *rest = skip_scheme(url);
	CURLU *parts;
	CURLUcode code;

	if (!rest)
		return "it must begin with http:// or https://";
	if (*rest == '\0' || strchr("/?#", *rest))
		return "there must be a host";
	parts = curl_url();
	assert(parts);
	code = curl_url_set(parts, CURLUPART_URL, url, 0);
	curl_url_cleanup(parts);
	if (code == CURLUE_NO_HOST)
		return "there must be a host";
	return code == CURLUE_OK ? NULL : curl_url_strerror(code);
}

static void set_times(struct webhook_channel *channel, int64_t total_ns)
{
	struct slot_settings *settings = &channel->settings;

	settings->total_ms = (long)((total_ns + NS_PER_MS - 1) / NS_PER_MS);
	settings->connect_ms =
		settings->total_ms < CONNECT_MAX_MS ? settings->total_ms : CONNECT_MAX_MS;
	channel->base.longest_ns = total_ns + SLACK_NS;
}

static void make_slots(struct webhook_channel *channel, size_t count)
{
	channel->base.slots = channel->free_count = count;
	channel->slots = qp_calloc(count, sizeof(*channel->slots));
	for (size_t i = count; i-- > 0;) {
		slot_init(&channel->slots[i], &channel->settings);
		push(&channel->free, &channel->slots[i]);
	}
}

struct channel *webhook_channel_new(
	const char *url, const struct webhook_limits *limits, char *why, size_t size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct webhook_channel *channel;
	const char *problem;

	pthread_once(&once, init_libcurl);
	problem = find_problem(url);
	if (problem) {
		snprintf(why, size, "the URL of the webhook cannot be used: %s", problem);
		return NULL;
	}
	channel = qp_calloc(1, sizeof(*channel));
	channel->base.ops = &channel_ops;
	channel->base.engine = "webhook";
	channel->settings.url = channel->url = qp_strdup(url);
	channel->multi = curl_multi_init();
	assert(channel->multi);
	set_times(channel, limits && limits->total_ns > 0 ? limits->total_ns : TOTAL_DEFAULT_NS);
	make_slots(channel, limits && limits->slots > 0 ? limits->slots : SLOTS_DEFAULT);
	must(curl_multi_setopt(channel->multi, CURLMOPT_MAXCONNECTS, (long)channel->base.slots));
	return &channel->base;
}

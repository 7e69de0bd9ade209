/*
 * Runs the transfers of the webhook notifier in its slots, and checks the URL.
 *
 * libcurl's multi interface runs all transfers in the calling thread, so `woken` is the only state
 * that other threads share. Invariant: each slot is in transit, in the list `free` or in the list
 * `settled`, and free_count is the length of `free`.
 */
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
#include "base/steady.h"

#define SLOTS_DEFAULT 64
#define TOTAL_DEFAULT_NS (10 * NS_PER_S)
#define CONNECT_MAX_MS 5000
#define POLL_MAX_MS 60000

struct webhook_notifier {
	struct notifier base;
	CURLM *multi;
	char *url;
	struct slot_settings settings;
	atomic_bool woken;

	struct webhook_slot *slots;
	struct webhook_slot *free;
	size_t free_count;
	struct webhook_slot *settled; /* slots whose results wait() has not returned yet */
};

static const struct notifier_ops notifier_ops;

static struct webhook_notifier *notifier_of(struct notifier *notifier)
{
	assert(notifier->ops == &notifier_ops);
	return (struct webhook_notifier *)notifier;
}

/* Aborts if `code` is an error, because then libcurl has run out of memory or this adapter has a
 * bug. */
static void must(CURLMcode code)
{
	if (code == CURLM_OK)
		return;
	log_line(LOG_ERROR, "notify", "libcurl failed, so the program aborts: %s",
		curl_multi_strerror(code));
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

static size_t notifier_free_slots(struct notifier *base)
{
	return notifier_of(base)->free_count;
}

static void notifier_send(struct notifier *base, const struct notice *notice)
{
	struct webhook_notifier *notifier = notifier_of(base);
	struct webhook_slot *slot = pop(&notifier->free);

	assert(notifier->free_count > 0);
	notifier->free_count--;
	if (slot_load(slot, notice))
		must(curl_multi_add_handle(notifier->multi, slot->easy));
	else
		push(&notifier->settled, slot);
}

/* Lets libcurl read and write as much as it can, and settles the transfers that have ended. */
static void advance(struct webhook_notifier *notifier)
{
	CURLMsg *message;
	int number;

	must(curl_multi_perform(notifier->multi, &number));
	while ((message = curl_multi_info_read(notifier->multi, &number))) {
		struct webhook_slot *slot = slot_of(message->easy_handle);
		CURLcode code = message->data.result;

		assert(message->msg == CURLMSG_DONE);
		must(curl_multi_remove_handle(notifier->multi, slot->easy));
		slot_settle(slot, code);
		push(&notifier->settled, slot);
	}
}

static size_t hand_out(struct webhook_notifier *notifier, struct notice_result *results, size_t max)
{
	size_t count = 0;

	while (notifier->settled && count < max) {
		struct webhook_slot *slot = pop(&notifier->settled);

		results[count++] = slot->result;
		push(&notifier->free, slot);
		notifier->free_count++;
	}
	return count;
}

static size_t notifier_wait(
	struct notifier *base, struct notice_result *results, size_t max, int64_t until_ns)
{
	struct webhook_notifier *notifier = notifier_of(base);
	bool woken;
	int left_ms;

	assert(max > 0);
	for (;;) {
		advance(notifier);
		woken = atomic_exchange(&notifier->woken, false);
		left_ms = steady_ms_until(until_ns, POLL_MAX_MS);
		if (notifier->settled || woken || left_ms == 0)
			return hand_out(notifier, results, max);
		must(curl_multi_poll(notifier->multi, NULL, 0, left_ms, NULL));
	}
}

static void notifier_wake(struct notifier *base)
{
	struct webhook_notifier *notifier = notifier_of(base);

	atomic_store(&notifier->woken, true);
	curl_multi_wakeup(notifier->multi);
}

static void notifier_free(struct notifier *base)
{
	struct webhook_notifier *notifier = notifier_of(base);

	for (size_t i = 0; i < base->slots; i++) {
		/* does nothing if the handle is not in transit */
		must(curl_multi_remove_handle(notifier->multi, notifier->slots[i].easy));
		slot_release(&notifier->slots[i]);
	}
	must(curl_multi_cleanup(notifier->multi));
	free(notifier->slots);
	free(notifier->url);
	free(notifier);
}

static const struct notifier_ops notifier_ops = {
	.free_slots = notifier_free_slots,
	.send = notifier_send,
	.wait = notifier_wait,
	.wake = notifier_wake,
	.free = notifier_free,
};

/* ---- creating ---------------------------------------------------------------------------- */

static void init_libcurl(void)
{
	CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);

	assert(code == CURLE_OK);
	(void)code;
}

/* Returns the part of the URL after http:// or https://, or NULL if the URL begins with neither. */
static const char *skip_scheme(const char *url)
{
	if (strncasecmp(url, "http://", 7) == 0)
		return url + 7;
	return strncasecmp(url, "https://", 8) == 0 ? url + 8 : NULL;
}

/* Does not rely on libcurl's check alone, because libcurl also accepts http:/a and http:///a. */
const char *webhook_url_problem(const char *url)
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

static void set_times(struct webhook_notifier *notifier, int64_t total_ns)
{
	struct slot_settings *settings = &notifier->settings;

	settings->total_ms = (long)((total_ns + NS_PER_MS - 1) / NS_PER_MS);
	settings->connect_ms =
		settings->total_ms < CONNECT_MAX_MS ? settings->total_ms : CONNECT_MAX_MS;
	notifier->base.longest_ns = total_ns + NOTIFIER_SLACK_NS;
}

static void create_slots(struct webhook_notifier *notifier, size_t count)
{
	notifier->base.slots = notifier->free_count = count;
	notifier->slots = qp_calloc(count, sizeof(*notifier->slots));
	for (size_t i = count; i-- > 0;) {
		slot_init(&notifier->slots[i], &notifier->settings);
		push(&notifier->free, &notifier->slots[i]);
	}
}

struct notifier *webhook_notifier_new(
	const char *url, const struct webhook_limits *limits, char *why, size_t size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct webhook_notifier *notifier;
	const char *problem;

	pthread_once(&once, init_libcurl);
	problem = webhook_url_problem(url);
	if (problem) {
		snprintf(why, size, "the URL of the webhook cannot be used: %s", problem);
		return NULL;
	}
	notifier = qp_calloc(1, sizeof(*notifier));
	notifier->base.ops = &notifier_ops;
	notifier->base.engine = "webhook";
	notifier->settings.url = notifier->url = qp_strdup(url);
	notifier->settings.secrets = limits ? limits->secrets : NULL;
	notifier->multi = curl_multi_init();
	assert(notifier->multi);
	set_times(notifier, limits && limits->total_ns > 0 ? limits->total_ns : TOTAL_DEFAULT_NS);
	create_slots(notifier, limits && limits->slots > 0 ? limits->slots : SLOTS_DEFAULT);
	must(curl_multi_setopt(notifier->multi, CURLMOPT_MAXCONNECTS, (long)notifier->base.slots));
	return &notifier->base;
}

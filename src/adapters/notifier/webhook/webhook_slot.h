/*
 * One notice on its way: a libcurl easy handle, what has come back of the answer so far, and what
 * is made of it in the end. The handle, and with it the connection, serves one notice after the
 * other.
 *
 *   state      event                          next       function
 *   free       a notice                       loaded     slot_load
 *   loaded     libcurl is done with it        settled    slot_settle
 *   loaded     it cannot be sent at all       settled    slot_refuse
 *   settled    the result was handed out      free       (the notifier's)
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_SLOT_H
#define QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_SLOT_H

#include <curl/curl.h>

#include "ports/notifier.h"

/* The same for all slots of a notifier. */
struct slot_settings {
	const char *url;
	long total_ms;
	long connect_ms;
};

struct webhook_slot {
	struct webhook_slot *next; /* in whichever list of the notifier it is */
	const struct slot_settings *settings;
	CURL *easy;
	struct curl_slist *headers;
	long status;     /* of the answer; 0 until its head is complete */
	size_t received; /* bytes of its body */
	struct notice_result result;
};

/* `settings` must live as long as the slot. */
void slot_init(struct webhook_slot *slot, const struct slot_settings *settings);
void slot_release(struct webhook_slot *slot);

/* The slot whose handle this is. */
struct webhook_slot *slot_of(CURL *easy);

/* Makes the request of a notice. false: it cannot be sent; the result says why. */
QP_MUST_CHECK bool slot_load(struct webhook_slot *slot, const struct notice *notice);

/* Makes the result of how the transfer ended. */
void slot_settle(struct webhook_slot *slot, CURLcode code);

/* Makes the result of what was never on its way. */
void slot_refuse(struct webhook_slot *slot, enum notice_fate fate, const char *error);

#endif

/*
 * A slot carries one notice in transit: it holds a libcurl handle, the response so far, and the
 * result. The slot keeps its handle for the next notice. libcurl shares the open connections among
 * all slots, so the next notice may use a connection that another slot opened.
 *
 *   state      event                              next       function
 *   free       a notice is to be sent             loaded     slot_load
 *   free       the notice cannot be sent          settled    slot_load if it fails, or slot_refuse
 *   loaded     libcurl has ended the transfer     settled    slot_settle
 *   settled    the result has been handed out     free       hand_out, in webhook_notifier.c
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_SLOT_H
#define QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_SLOT_H

#include <curl/curl.h>

#include "adapters/notifier/webhook/webhook_secrets.h"
#include "ports/notifier.h"

/* Settings that all slots of a notifier share. */
struct slot_settings {
	const char *url;
	struct webhook_secrets *secrets; /* NULL if requests are not signed */
	long total_ms;
	long connect_ms;
};

struct webhook_slot {
	/* the next slot in the notifier's list of free or settled slots */
	struct webhook_slot *next;
	const struct slot_settings *settings;
	CURL *easy;
	struct curl_slist *headers;
	bool is_forbidden; /* the host has an address that webhooks may not use */
	long status;       /* the response's status; 0 until its header is complete */
	size_t received;   /* bytes of the response's body */
	struct notice_result result;
};

/* `settings` must live as long as the slot. */
void slot_init(struct webhook_slot *slot, const struct slot_settings *settings);
void slot_release(struct webhook_slot *slot);

/* Returns the slot to which the handle belongs. */
struct webhook_slot *slot_of(CURL *easy);

/*
 * Prepares the request for a notice and copies the notice's data. Returns false if the notice
 * cannot be sent; the result then says why.
 */
QP_MUST_CHECK bool slot_load(struct webhook_slot *slot, const struct notice *notice);

/* Sets the result after the transfer has ended with `code`. */
void slot_settle(struct webhook_slot *slot, CURLcode code);

/* Sets the result of a notice that was never sent. */
void slot_refuse(struct webhook_slot *slot, enum notice_fate fate, const char *error);

#endif

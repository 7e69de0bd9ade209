/*
 * Implements ports/notifier.h with a webhook: each notice is one POST request with a JSON body. All
 * transfers run in the thread that calls wait(), with libcurl's multi interface. Only HTTP/1.1 is
 * used, so that each notice in transit has a connection to itself. With HTTP/2 all notices would
 * share one connection, and if that connection hung, all notices would hang.
 *
 * A notice carries the same Idempotency-Key and webhook-id at every attempt, so that a receiver
 * that remembers these ids processes the notice once. If there are secrets, each request is signed
 * as in Standard Webhooks.
 *
 *   response                                 fate
 *   2xx                                      SENT
 *   4xx except 408, 425, 429                 REFUSED: the receiver will never accept it
 *   any other status, including redirects    FAILED: redirects are not followed
 *   no response in time, or no connection    FAILED
 *
 * Link-local addresses and Amazon's fd00:ec2::254 are forbidden, because cloud providers serve
 * credentials there. The notifier opens no connection to such an address. If the host has no other
 * address, the fate is FAILED.
 *
 * If the status is 429 or 503, the result contains the value of Retry-After; a value above one day
 * counts as one day.
 *
 * The status decides the fate as soon as the response's header is complete. The body is read only
 * so that the connection can be reused. If the body is larger than 64 KiB, ends early or never
 * ends, the notifier stops reading it, and the fate stays the same.
 *
 * Neither log lines nor errors contain any part of the URL. The program must ignore SIGPIPE.
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_NOTIFIER_H
#define QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_NOTIFIER_H

#include "adapters/notifier/webhook/webhook_secrets.h"
#include "ports/notifier.h"

#define WEBHOOK_BODY_MAX 65536

struct webhook_limits {
	size_t slots; /* 0 means 64 */
	/* the time limit per notice, from connecting to the end of the response; 0 means 10 s */
	int64_t total_ns;
	struct webhook_secrets *secrets; /* for signing the requests; may be NULL; not owned */
};

/* Returns NULL if `url` can be the URL of a webhook. Otherwise returns a static text that says what
 * is wrong and contains no part of the URL. Any thread. */
QP_MUST_CHECK const char *webhook_url_problem(const char *url);

/*
 * `url` is an http or https URL, which is copied. It may contain user:password@, which is sent as
 * Basic authentication. `limits` may be NULL. Returns NULL if the URL is wrong; `why`, of `size`
 * bytes, then says what is wrong.
 *
 * The first call initialises libcurl for the whole process, so call it before other threads start.
 */
QP_MUST_CHECK struct notifier *webhook_notifier_new(
	const char *url, const struct webhook_limits *limits, char *why, size_t size);

#endif

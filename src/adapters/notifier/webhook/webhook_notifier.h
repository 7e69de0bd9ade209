/*
 * A webhook behind ports/notifier.h: every notice is one POST of its body as JSON, with libcurl's
 * multi interface, all in the thread that calls wait(). HTTP/1.1 alone, so that each slot has a
 * connection of its own, which is kept and used again: with HTTP/2 one connection that hangs would
 * hold up every notice on it.
 *
 * The same notice carries the same Idempotency-Key however often it is tried, so that a receiver
 * that keeps the keys sees it once.
 *
 *   the answer                             fate
 *   2xx                                    SENT
 *   4xx but 408, 425, 429                  REFUSED: the receiver will never take it
 *   any other status, a redirect included  FAILED: redirects are not followed
 *   none within the time, or no connection FAILED
 *
 * The status counts as soon as the head of the answer is complete. The body is read only so that
 * the connection can be used again: a body of over 64 KiB, or one that breaks off or never ends, is
 * cut off, and the status stands.
 *
 * Neither log lines nor errors hold any part of the URL. The program must ignore SIGPIPE.
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_NOTIFIER_H
#define QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_NOTIFIER_H

#include "ports/notifier.h"

#define WEBHOOK_BODY_MAX 65536

struct webhook_limits {
	size_t slots;     /* 0: 64 */
	int64_t total_ns; /* for a notice, from the connection to the end of the answer; 0: 10 s */
};

/*
 * `url` is http or https with a host; it may have user:password@, which is sent as Basic
 * authentication. It is copied. `limits` may be NULL. NULL: `why`, of `size` bytes, says what is
 * wrong with the URL.
 *
 * The first call sets libcurl up for the whole process: make it before other threads start.
 */
QP_MUST_CHECK struct notifier *webhook_notifier_new(
	const char *url, const struct webhook_limits *limits, char *why, size_t size);

#endif

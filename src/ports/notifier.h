/*
 * A notifier sends notices. A notice is a notification or a message of the gateway. Depending on
 * its engine, a notifier writes each notice as a line of text or sends it in a POST request to a
 * webhook. A notifier has a number of slots, each of which holds one notice in transit, so that a
 * notice that hangs does not hold up other notices. Implemented by adapters/notifier/console,
 * adapters/notifier/sms and adapters/notifier/webhook.
 *
 * Only one thread may use a notifier, except for wake().
 */
#ifndef QUIPU_PORTS_NOTIFIER_H
#define QUIPU_PORTS_NOTIFIER_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/slice.h"
#include "base/status.h"

struct notice {
	struct slice id;    /* the id of the notification or message; the same for every attempt */
	struct slice trace; /* traceparent; may be empty */
	struct slice body;  /* JSON text */
	uint64_t tag;       /* chosen by the caller; returned with the result */
};

enum notice_fate {
	NOTICE_SENT,
	NOTICE_FAILED,  /* a retry may help */
	NOTICE_REFUSED, /* the receiver will never accept the notice */
};

#define NOTICE_ERROR_SIZE 200

struct notice_result {
	uint64_t tag;
	enum notice_fate fate;
	int64_t retry_after_us;        /* FAILED: how long the receiver asked us to wait, or 0 */
	bool is_unreachable;           /* FAILED: there was no connection, so nothing was sent */
	char error[NOTICE_ERROR_SIZE]; /* empty if the notice was sent */
};

struct notifier;

struct notifier_ops {
	/* Returns how many notices can be sent now. Never blocks. */
	size_t (*free_slots)(struct notifier *notifier);

	/* Takes a free slot and starts to send the notice. The caller makes sure that a slot is
	 * free. Copies the parts of `notice` that it needs. Never blocks for long. */
	void (*send)(struct notifier *notifier, const struct notice *notice);

	/*
	 * Waits until at least one notice has a result or wake() is called, but at most until the
	 * monotonic time `until_ns`. Writes up to `max` results, frees their slots, and returns the
	 * number of results. Every notice has a result within longest_ns.
	 */
	size_t (*wait)(struct notifier *notifier, struct notice_result *results, size_t max,
		int64_t until_ns);

	/* Makes a wait() in progress return immediately. If no wait() is in progress, the next
	 * wait() returns immediately. Thread-safe; never blocks. */
	void (*wake)(struct notifier *notifier);

	/* Aborts the notices that are in transit, and frees the notifier. */
	void (*free)(struct notifier *notifier);
};

/* How much longer than its timeout a notice may take, because the sending thread also handles other
 * notices. */
#define NOTIFIER_SLACK_NS NS_PER_S

/* Each adapter embeds this struct as the first member of a struct of its own. */
struct notifier {
	const struct notifier_ops *ops;
	const char *engine; /* "log", "console", "webhook" */
	size_t slots;
	int64_t longest_ns; /* the longest time that a notice can take */
};

#endif

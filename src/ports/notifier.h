/*
 * How notifications leave: printed as a log line, or posted to a webhook. A notifier has a number
 * of slots; each holds one notice on its way, so that one that hangs does not hold up the others.
 * Implemented by adapters/console and adapters/webhook.
 *
 * Used by one thread, but for wake().
 */
#ifndef QUIPU_PORTS_NOTIFIER_H
#define QUIPU_PORTS_NOTIFIER_H

#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "base/status.h"

struct notice {
	struct slice id;    /* of the notification: the same every time it is tried */
	struct slice trace; /* traceparent, may be empty */
	struct slice body;  /* JSON */
	uint64_t tag;       /* the caller's, comes back with the result */
};

enum notice_fate {
	NOTICE_SENT,
	NOTICE_FAILED,  /* trying again may help */
	NOTICE_REFUSED, /* it will never be taken */
};

#define NOTICE_ERROR_SIZE 200

struct notice_result {
	uint64_t tag;
	enum notice_fate fate;
	char error[NOTICE_ERROR_SIZE]; /* empty if it was sent */
};

struct notifier;

struct notifier_ops {
	/* How many notices can be sent now. Never blocks. */
	size_t (*free_slots)(struct notifier *notifier);

	/* Takes a free slot; what it needs of the notice is copied. Never blocks for long. */
	void (*send)(struct notifier *notifier, const struct notice *notice);

	/*
	 * Waits until something is known of at least one notice, woken, or steady time `until_ns`;
	 * gives up to `max` results, whose slots are free again. Every notice gets a result within
	 * longest_ns.
	 */
	size_t (*wait)(struct notifier *notifier, struct notice_result *results, size_t max,
		int64_t until_ns);

	/* Any thread: a wait, or the next one, returns at once. Never blocks. */
	void (*wake)(struct notifier *notifier);

	/* What is on its way is cut off. */
	void (*free)(struct notifier *notifier);
};

/* The head of each adapter's own notifier. */
struct notifier {
	const struct notifier_ops *ops;
	const char *engine; /* "log", "webhook" */
	size_t slots;
	int64_t longest_ns; /* how long a notice can take */
};

#endif

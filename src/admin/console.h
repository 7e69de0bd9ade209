/*
 * Serves the console: its pages, which come from the folder console/, and the routes that only
 * these pages need.
 *
 *   GET /                           redirects to /console
 *   GET /console, /console/{file}   the pages, scripts and styles
 *   GET /operator/console/access    who the caller is, and which routes the caller may call
 *   GET /operator/console/stream    a snapshot every second, as an event stream
 *
 * The pages have no special rights: they can do only what the viewer could do with curl and the
 * same API key. A separate thread takes the snapshots, once for all viewers and only while there
 * are viewers.
 */
#ifndef QUIPU_ADMIN_CONSOLE_H
#define QUIPU_ADMIN_CONSOLE_H

#include "access/guard.h"
#include "base/metrics.h"
#include "http/hub.h"
#include "http/router.h"

struct console_config {
	/* Everything that the members of this struct point to must outlive the console. */
	const struct metrics *metrics;
	const struct router *router;
	/* points to the program's pointer to the guard, because the guard is created later; the
	 * program's pointer is NULL if callers are not checked */
	struct guard *const *guard;
	const char *roles; /* as in --roles */
};

struct console;

/* Creates the console and adds its routes. */
struct console *console_new(const struct console_config *config, struct router *router);

/* Starts the thread that takes the snapshots. */
void console_start(struct console *console);

/* Ends the thread, if it was started. The thread collects the metrics of the whole program, so call
 * this function before you free anything that has metrics. */
void console_stop(struct console *console);

/* Must be called after console_stop() and server_free(). */
void console_free(struct console *console);

#endif

/*
 * The console: the pages of console/, served by the program itself, and what they need beyond the
 * public routes.
 *
 *   GET /                           leads to /console
 *   GET /console, /console/{file}   the pages, scripts and styles
 *   GET /operator/console/access    who the caller is, and which routes it may call
 *   GET /operator/console/stream    a snapshot a second, as an event stream
 *
 * The page is a client like any other: it can do nothing that the caller's key cannot do with curl.
 * A thread of its own makes the snapshot, once for all viewers and only while there are any.
 */
#ifndef QUIPU_ADMIN_CONSOLE_H
#define QUIPU_ADMIN_CONSOLE_H

#include "access/guard.h"
#include "base/metrics.h"
#include "http/hub.h"
#include "http/router.h"

struct console_config {
	const struct metrics *metrics; /* all of these outlive the console */
	const struct router *router;
	struct guard *const *guard; /* points to where the guard will be; NULL there if nothing is
				       checked */
	const char *roles;          /* as --roles names them */
};

struct console;

/* Creates the console and adds its routes. */
struct console *console_new(const struct console_config *config, struct router *router);

/* Starts the thread. */
void console_start(struct console *console);

/* Ends the thread. Call it while everything that has metrics still exists. */
void console_stop(struct console *console);

/* Call it after server_free(). */
void console_free(struct console *console);

#endif

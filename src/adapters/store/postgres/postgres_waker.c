/*
 * The thread of the waker (see postgres_waker.h). The thread waits in one poll() both for its
 * connection and for announcements to send, so it never blocks in libpq:
 *
 *   state          event                                       next         function
 *   DOWN           the retry time has come                     CONNECTING   dial
 *   CONNECTING     connected; LISTEN is sent                   BUSY         go_on_connecting, greet
 *   BUSY           the server has answered                     READY        answered
 *   READY          an announcement is due; NOTIFY is sent      BUSY         notify_due
 *   all but DOWN   the connection fails, or the server         DOWN         lose
 *                  refuses a statement or is silent too long
 */
#include "adapters/store/postgres/postgres_waker.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "adapters/shared/announcements.h"
#include "adapters/store/postgres/postgres_internal.h"
#include "base/clock.h"
#include "base/log.h"

#define CONNECT_MAX_NS (3 * NS_PER_S)
#define SILENCE_MAX_NS (10 * NS_PER_S)
#define RETRY_FIRST_NS (50 * NS_PER_MS)
#define RETRY_LAST_NS NS_PER_S
#define CHANNEL "quipu" /* carries all notifications; the payload is the announcement */

enum waker_state { WAKER_DOWN, WAKER_CONNECTING, WAKER_BUSY, WAKER_READY };

struct pg_waker {
	const char *store_name;
	const char *url;
	struct listeners *listeners;
	pthread_t thread;
	struct announcements announcements;

	/* The members below are used only by the waker's thread. */
	enum waker_state state;
	PGconn *connection;
	short events;     /* which events to poll the socket for */
	int64_t until_ns; /* DOWN: when to retry; CONNECTING, BUSY: when to give up */
	int64_t retry_ns;
	unsigned attempt;    /* the number of the URL's host to try next */
	bool is_greeting;    /* waits for the answer to LISTEN */
	bool has_complained; /* the loss of the connection has been logged */
};

static int64_t now_ns(void)
{
	return clock_steady_ns(&clock_system);
}

/* ---- the connection ---------------------------------------------------------------------- */

static void lose(struct pg_waker *waker)
{
	const char *why = waker->connection ? PQerrorMessage(waker->connection) : "";

	if (!*why)
		why = "no answer in time";
	if (!waker->has_complained)
		log_line(LOG_WARN, "store",
			"%s: announcements do not reach other processes for now: %.*s",
			waker->store_name, (int)strcspn(why, "\n"), why);
	waker->has_complained = true;
	PQfinish(waker->connection);
	waker->connection = NULL;
	waker->state = WAKER_DOWN;
	waker->until_ns = now_ns() + waker->retry_ns;
	waker->retry_ns = waker->retry_ns * 2 < RETRY_LAST_NS ? waker->retry_ns * 2 : RETRY_LAST_NS;
}

/* Ignores notices. Otherwise libpq would print the notice that a server sends when it shuts
 * down. */
static void ignore_notice(void *context, const PGresult *notice)
{
	(void)context;
	(void)notice;
}

static void dial(struct pg_waker *waker)
{
	waker->connection = pg_dial_start(waker->url, waker->attempt++);
	PQsetNoticeReceiver(waker->connection, ignore_notice, NULL);
	waker->state = WAKER_CONNECTING;
	waker->events = POLLOUT;
	waker->until_ns = now_ns() + CONNECT_MAX_NS;
	if (PQstatus(waker->connection) == CONNECTION_BAD)
		lose(waker);
}

static void expect_answer(struct pg_waker *waker, int sent)
{
	waker->state = WAKER_BUSY;
	waker->events = POLLIN;
	waker->until_ns = now_ns() + SILENCE_MAX_NS;
	if (!sent)
		lose(waker);
}

/* Sends LISTEN. Also turns off synchronous_commit: there is no reason to wait for the disk, because
 * a crash of the server loses all notifications, even those of committed transactions. */
static void greet(struct pg_waker *waker)
{
	waker->is_greeting = true;
	expect_answer(waker,
		PQsendQuery(waker->connection, "SET synchronous_commit = off; LISTEN " CHANNEL));
}

static void go_on_connecting(struct pg_waker *waker)
{
	switch (PQconnectPoll(waker->connection)) {
	case PGRES_POLLING_READING:
		waker->events = POLLIN;
		break;
	case PGRES_POLLING_WRITING:
		waker->events = POLLOUT;
		break;
	case PGRES_POLLING_OK:
		greet(waker);
		break;
	default:
		lose(waker);
		break;
	}
}

/* ---- the server's messages --------------------------------------------------------------- */

/* Called when the server has completely answered a statement. After LISTEN, calls all listeners,
 * because they may have missed earlier announcements. */
static void answered(struct pg_waker *waker)
{
	waker->state = WAKER_READY;
	waker->retry_ns = RETRY_FIRST_NS;
	if (!waker->is_greeting)
		return;
	waker->is_greeting = false;
	if (waker->has_complained)
		log_line(LOG_INFO, "store", "%s: announcements reach other processes again",
			waker->store_name);
	waker->has_complained = false;
	listeners_call(waker->listeners, NULL);
}

/* Reads the results that have arrived. Returns false if the server refused a statement. */
static bool take_results(struct pg_waker *waker)
{
	while (waker->state == WAKER_BUSY && !PQisBusy(waker->connection)) {
		PGresult *result = PQgetResult(waker->connection);
		ExecStatusType status = PQresultStatus(result);

		if (!result)
			answered(waker);
		PQclear(result);
		if (result && status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			return false;
	}
	return true;
}

/* Calls the listeners of each announcement that has arrived. Ignores this connection's own
 * announcements, because this process has already called its listeners for them. */
static void take_notifications(struct pg_waker *waker)
{
	PGnotify *notify;

	while ((notify = PQnotifies(waker->connection)) != NULL) {
		if (notify->be_pid != PQbackendPID(waker->connection))
			listeners_call(waker->listeners, notify->extra);
		PQfreemem(notify);
	}
}

static void read_socket(struct pg_waker *waker)
{
	if (!PQconsumeInput(waker->connection) || !take_results(waker)) {
		lose(waker);
		return;
	}
	take_notifications(waker);
}

/* ---- announcements ----------------------------------------------------------------------- */

void pg_waker_announce(struct pg_waker *waker, const char *announcement)
{
	announcements_add(&waker->announcements, announcement);
}

static void notify_due(struct pg_waker *waker)
{
	int64_t due_ns;
	const char *announcement = announcements_next(&waker->announcements, &due_ns);

	if (!announcement || due_ns > now_ns())
		return;
	announcements_tell(&waker->announcements, announcement, now_ns());
	expect_answer(
		waker, PQsendQueryParams(waker->connection, "SELECT pg_notify('" CHANNEL "', $1)",
			       1, NULL, &announcement, NULL, NULL, 0));
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Waits until the connection's socket is ready or step() may have something else to do. Returns
 * whether the socket is ready. */
static bool wait_for_something(struct pg_waker *waker)
{
	int fd = waker->connection ? PQsocket(waker->connection) : -1;
	int64_t until_ns = waker->until_ns;

	if (waker->state == WAKER_READY && !announcements_next(&waker->announcements, &until_ns))
		until_ns = INT64_MAX;
	return announcements_wait(&waker->announcements, fd, waker->events, until_ns);
}

static void step(struct pg_waker *waker, bool is_readable)
{
	if (waker->state == WAKER_CONNECTING && is_readable)
		go_on_connecting(waker);
	else if (waker->state != WAKER_DOWN && is_readable)
		read_socket(waker);
	if (waker->state == WAKER_READY)
		notify_due(waker);
	if (waker->state == WAKER_READY || now_ns() < waker->until_ns)
		return;
	if (waker->state == WAKER_DOWN)
		dial(waker);
	else
		lose(waker);
}

static void *run(void *argument)
{
	struct pg_waker *waker = argument;

	pthread_setname_np(pthread_self(), "pg-waker");
	dial(waker);
	while (!waker->announcements.is_stopping)
		step(waker, wait_for_something(waker));
	PQfinish(waker->connection);
	return NULL;
}

struct pg_waker *pg_waker_start(
	const char *store_name, const char *url, struct listeners *listeners)
{
	struct pg_waker *waker = qp_calloc(1, sizeof(*waker));
	int failed;

	waker->store_name = store_name;
	waker->url = url;
	waker->listeners = listeners;
	waker->retry_ns = RETRY_FIRST_NS;
	announcements_init(&waker->announcements);
	failed = pthread_create(&waker->thread, NULL, run, waker);
	assert(!failed);
	return waker;
}

void pg_waker_stop(struct pg_waker *waker)
{
	announcements_stop(&waker->announcements);
	pthread_join(waker->thread, NULL);
	announcements_release(&waker->announcements);
	free(waker);
}

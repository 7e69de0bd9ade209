/*
 * Waits for a signal, then stops step by step:
 *
 *   SIGTERM or SIGINT     /readyz answers 503; everything else is served as before
 *   --drain-delay later   the listening socket closes; requests finish, lanes drain
 *   --drain-timeout later requests still open get 503
 *
 * Load balancers poll /readyz, so some time passes before they know that this process is ending.
 * During the delay they may still connect, and their requests are served. Another signal ends the
 * current wait, because anyone who presses Ctrl-C again does not want to wait.
 */
#include <signal.h>

#include "app/app.h"
#include "base/clock.h"
#include "base/log.h"

#define FLUSH_NS (2 * NS_PER_S)
#define HURRY_POLL_NS (20 * NS_PER_MS)

/* Waits for a signal until the monotonic time `until_ns`. Returns the signal, or 0 if none
 * arrived. */
static int wait_for_signal(const sigset_t *signals, int64_t until_ns)
{
	int64_t left_ns = until_ns - clock_steady_ns(&clock_system);
	struct timespec left = {0};
	int received;

	if (left_ns > 0) {
		left.tv_sec = (time_t)(left_ns / NS_PER_S);
		left.tv_nsec = (long)(left_ns % NS_PER_S);
	}
	received = sigtimedwait(signals, NULL, &left);
	return received > 0 ? received : 0;
}

/* Waits for a signal to stop. Returns true as soon as it arrives, or false if none has arrived by
 * the monotonic time `until_ns`. On SIGHUP, reads the files again and keeps waiting. */
static bool is_told_to_stop(struct app *app, const sigset_t *signals, int64_t until_ns)
{
	int received;

	do {
		received = wait_for_signal(signals, until_ns);
		if (received == SIGHUP)
			app_reload_files(app);
	} while (
		received == SIGHUP || (received == 0 && clock_steady_ns(&clock_system) < until_ns));
	return received != 0;
}

void app_wait_for_stop(struct app *app, const sigset_t *signals)
{
	while (!is_told_to_stop(app, signals, INT64_MAX))
		;
}

/* Keeps serving for --drain-delay. Meanwhile /readyz reports that the process is not ready, so that
 * load balancers send new requests elsewhere. */
static void stay_open(struct app *app, const sigset_t *signals)
{
	int64_t delay_us = app->settings.drain_delay_us;
	int64_t until_ns = clock_steady_ns(&clock_system) + delay_us * NS_PER_US;

	if (delay_us == 0)
		return;
	log_line(LOG_INFO, "main",
		"stopping: reporting not ready; accepting connections for another %lld ms "
		"(--drain-delay)",
		(long long)(delay_us / 1000));
	if (is_told_to_stop(app, signals, until_ns))
		log_line(LOG_INFO, "main",
			"another signal: not waiting for the rest of --drain-delay");
}

/* Returns true as soon as all requests are answered. Returns false after --drain-timeout or after
 * another signal. */
static bool wait_for_requests(struct app *app, const sigset_t *signals)
{
	int64_t until_ns =
		clock_steady_ns(&clock_system) + app->settings.drain_timeout_us * NS_PER_US;
	int64_t now_ns = clock_steady_ns(&clock_system);

	do {
		int64_t next_ns = now_ns + HURRY_POLL_NS;

		if (server_wait_idle(app->server, next_ns < until_ns ? next_ns : until_ns))
			return true;
		now_ns = clock_steady_ns(&clock_system);
		if (is_told_to_stop(app, signals, now_ns)) {
			log_line(LOG_WARN, "main",
				"another signal: refusing the remaining requests");
			return false;
		}
	} while (now_ns < until_ns);
	log_line(LOG_WARN, "main", "--drain-timeout has passed; refusing the remaining requests");
	return false;
}

static void end_lanes(struct app *app, bool abort)
{
	for (size_t i = 0; i < app->lanes_count; i++) {
		if (abort)
			lane_set_abort(app->lanes[i]);
		lane_set_close(app->lanes[i]);
		lane_set_join(app->lanes[i]);
	}
}

void app_drain(struct app *app, const sigset_t *signals)
{
	bool is_answered;

	atomic_store(&app->health.draining, true);
	stay_open(app, signals);
	log_line(LOG_INFO, "main", "stopping: finishing the requests that have begun");
	server_drain(app->server);
	is_answered = wait_for_requests(app, signals);
	end_lanes(app, !is_answered);
	if (!server_wait_idle(app->server, clock_steady_ns(&clock_system) + FLUSH_NS))
		log_line(LOG_WARN, "main", "some clients have not read their last answer");
}

/*
 * Combines the work of several threads. A thread queues its work. If no other thread is using the
 * file, this thread becomes the leader and does a round of work: it takes the whole queue, runs the
 * reads, then runs all writes in ONE transaction, and wakes the other threads. A hundred threads
 * that publish at the same moment need only one fsync, and a thread waits at most for the current
 * round of work and for the next round, which includes its own work.
 *
 * Invariants: there is at most one leader (`led`), and only the leader uses the file. Work that a
 * leader has taken always gets an outcome; the thread that queued the work waits for it, even past
 * the deadline.
 */
#include "adapters/bus/local/local_internal.h"
#include "base/failpoint.h"
#include "base/log.h"

static const char begin_sql[] = "BEGIN IMMEDIATE";
static const char commit_sql[] = "COMMIT";

/* ---- up or down, for is_up() and the log -------------------------------------------------- */

static void note_failure(struct local_bus *bus, int rc)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	char words[SQLITE_WORDS_SIZE];

	if (atomic_exchange(&bus->failed_at_ns, now_ns ? now_ns : 1) != 0)
		return;
	sqlite_connection_explain(&bus->file.connection, rc, words);
	log_line(LOG_ERROR, "bus",
		"%s: the local queue in %s is unusable: %s (code %d); every call tries again",
		bus->base.name, bus->file.path, words, rc);
}

static void note_success(struct local_bus *bus)
{
	if (atomic_load_explicit(&bus->failed_at_ns, memory_order_relaxed) == 0 ||
		atomic_exchange(&bus->failed_at_ns, 0) == 0)
		return;
	log_line(LOG_INFO, "bus", "%s: the local queue works again", bus->base.name);
}

/* ---- a round of work --------------------------------------------------------------------- */

static int run_reads(struct local_bus *bus, struct local_work *works)
{
	int rc = SQLITE_OK;

	for (struct local_work *work = works; work && rc == SQLITE_OK; work = work->next) {
		if (work->writes)
			continue;
		rc = work->run(bus, work);
		if (rc == SQLITE_OK)
			work->outcome = LOCAL_DONE;
	}
	if (rc != SQLITE_OK)
		local_file_undo(&bus->file, rc);
	return rc;
}

static int run_writes(struct local_bus *bus, struct local_work *works)
{
	int rc = sqlite_connection_run(&bus->file.connection, begin_sql);

	for (struct local_work *work = works; work && rc == SQLITE_OK; work = work->next) {
		if (work->writes)
			rc = work->run(bus, work);
	}
	return rc;
}

/*
 * Commits the transaction. If SQLite returns BUSY, it has written nothing, so nothing was committed
 * and `*outcome` stays unchanged. After any other failure the outcome is unknown: the whole
 * transaction may be in the write-ahead log, and recovery would then apply it.
 */
static int commit(struct local_bus *bus, enum local_outcome *outcome)
{
	int rc;

	FAILPOINT("bus.commit.before");
	rc = sqlite_connection_run(&bus->file.connection, commit_sql);
	if (rc == SQLITE_OK) {
		FAILPOINT("bus.commit.after");
		*outcome = LOCAL_DONE;
		return rc;
	}
	if (sqlite_primary(rc) != SQLITE_BUSY) {
		*outcome = LOCAL_UNKNOWN;
		bus->file.in_doubt = true;
	}
	return rc;
}

static int transact(struct local_bus *bus, struct local_work *works)
{
	enum local_outcome outcome = LOCAL_FAILED;
	int rc = run_writes(bus, works);

	if (rc == SQLITE_OK)
		rc = commit(bus, &outcome);
	if (rc != SQLITE_OK)
		local_file_undo(&bus->file, rc);
	for (struct local_work *work = works; work; work = work->next) {
		if (work->writes)
			work->outcome = outcome;
	}
	return rc;
}

static bool any_writes(const struct local_work *works)
{
	while (works && !works->writes)
		works = works->next;
	return works;
}

/* Runs the reads of a round of work, and then its writes in one transaction. Stops at the first
 * failure. Work that has not run keeps the outcome FAILED, which take_all() has set. If a write
 * fails, all writes of the round are FAILED. */
static void run_round(struct local_bus *bus, struct local_work *works)
{
	int rc = local_file_prepare(&bus->file);

	if (rc == SQLITE_OK)
		rc = run_reads(bus, works);
	if (rc == SQLITE_OK && any_writes(works))
		rc = transact(bus, works);
	arena_reset(&bus->scratch);
	if (rc == SQLITE_OK)
		note_success(bus);
	else
		note_failure(bus, rc);
}

/* ---- the queue --------------------------------------------------------------------------- */

static struct local_work *take_all(struct local_bus *bus)
{
	struct local_work *works = bus->queue_first;

	for (struct local_work *work = works; work; work = work->next) {
		work->taken = true;
		work->outcome = LOCAL_FAILED;
	}
	bus->queue_first = NULL;
	bus->queue_last = &bus->queue_first;
	return works;
}

static void leave_queue(struct local_bus *bus, struct local_work *work)
{
	struct local_work **link = &bus->queue_first;

	while (*link != work)
		link = &(*link)->next;
	*link = work->next;
	if (!*link)
		bus->queue_last = link;
}

/* Does all queued work as the leader. The caller holds the lock, which is released while the work
 * runs. */
static void lead(struct local_bus *bus)
{
	struct local_work *works = take_all(bus);

	bus->led = true;
	pthread_mutex_unlock(&bus->lock);
	run_round(bus, works);
	pthread_mutex_lock(&bus->lock);
	while (works) {
		/* the thread that queued this work may free it once `done` is set */
		struct local_work *next = works->next;

		if (works->settle)
			works->settle(bus, works, works->outcome);
		works->done = true;
		works = next;
	}
	bus->led = false;
	pthread_cond_broadcast(&bus->worked);
}

enum local_outcome local_work_do(struct local_bus *bus, struct local_work *work, int64_t until_ns)
{
	work->next = NULL;
	work->taken = false;
	work->done = false;
	pthread_mutex_lock(&bus->lock);
	*bus->queue_last = work;
	bus->queue_last = &work->next;
	while (!work->done) {
		if (!bus->led) {
			lead(bus);
		} else if (work->taken) {
			pthread_cond_wait(&bus->worked, &bus->lock);
		} else if (!steady_wait_until(&bus->worked, &bus->lock, until_ns) && !work->taken &&
			   bus->led) {
			leave_queue(bus, work);
			work->outcome = LOCAL_TOO_LATE;
			work->done = true;
		}
	}
	pthread_mutex_unlock(&bus->lock);
	return work->outcome;
}

/*
 * A loop's inbox is a list under a mutex, with one uv_async_t to wake the loop. Only a task that is
 * added to an empty list wakes the loop, so a committer that answers 500 commands wakes each loop
 * once.
 *
 * Invariant: while the list is not empty, a wake-up is pending or the loop is running tasks. The
 * wake-up handle is the last handle of a loop; closing it ends the thread.
 */
#include "runtime/loop.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/arena.h"

/*
 * Loops run at this nice value, which is a low priority. So when processors are scarce, work that
 * was already accepted runs first: a database on the same machine, the relays and the intakes
 * finish their batches, and only then do loops accept more requests. Threads that take commands
 * from lanes also run at this priority. At a higher priority these threads would preempt the loops
 * at each request, and batches would be small.
 */
#define LOOP_NICE 5

struct loop {
	uv_loop_t uv;
	uv_async_t wake;
	pthread_t thread;
	const char *thread_name;
	void (*after_tasks)(void *context);
	void *context;

	pthread_mutex_t lock; /* guards everything below */
	struct loop_task *first;
	struct loop_task *last;
	bool stopping;
};

static struct loop_task *take_tasks(struct loop *loop, bool *stopping)
{
	struct loop_task *tasks;

	pthread_mutex_lock(&loop->lock);
	tasks = loop->first;
	loop->first = NULL;
	loop->last = NULL;
	*stopping = loop->stopping;
	pthread_mutex_unlock(&loop->lock);
	return tasks;
}

static bool has_tasks(struct loop *loop)
{
	bool has;

	pthread_mutex_lock(&loop->lock);
	has = loop->first != NULL;
	pthread_mutex_unlock(&loop->lock);
	return has;
}

/* Wakes the loop again if more tasks were posted while tasks were running; otherwise closes the
 * wake-up handle. */
static void end_if_empty(struct loop *loop)
{
	if (uv_is_closing((uv_handle_t *)&loop->wake))
		return;
	if (has_tasks(loop))
		uv_async_send(&loop->wake);
	else
		uv_close((uv_handle_t *)&loop->wake, NULL);
}

static void on_wake(uv_async_t *wake)
{
	struct loop *loop = wake->data;
	bool stopping;
	struct loop_task *task = take_tasks(loop, &stopping);

	while (task) {
		struct loop_task *next = task->next;

		task->run(task);
		task = next;
	}
	if (loop->after_tasks)
		loop->after_tasks(loop->context);
	if (stopping)
		end_if_empty(loop);
}

struct loop *loop_new(void (*after_tasks)(void *context), void *context)
{
	struct loop *loop = qp_calloc(1, sizeof(*loop));
	int failed;

	failed = uv_loop_init(&loop->uv);
	assert(!failed);
	failed = uv_async_init(&loop->uv, &loop->wake, on_wake);
	assert(!failed);
	loop->wake.data = loop;
	loop->after_tasks = after_tasks;
	loop->context = context;
	pthread_mutex_init(&loop->lock, NULL);
	return loop;
}

uv_loop_t *loop_uv(struct loop *loop)
{
	return &loop->uv;
}

void loop_lower_priority(void)
{
	setpriority(PRIO_PROCESS, (id_t)gettid(), LOOP_NICE);
}

static void *loop_main(void *argument)
{
	struct loop *loop = argument;

	pthread_setname_np(pthread_self(), loop->thread_name);
	loop_lower_priority();
	uv_run(&loop->uv, UV_RUN_DEFAULT);
	return NULL;
}

void loop_start(struct loop *loop, const char *thread_name)
{
	int failed;

	loop->thread_name = thread_name;
	failed = pthread_create(&loop->thread, NULL, loop_main, loop);
	assert(!failed);
}

void loop_post(struct loop *loop, struct loop_task *task)
{
	loop_post_chain(loop, task, task);
}

void loop_post_chain(struct loop *loop, struct loop_task *first, struct loop_task *last)
{
	bool was_empty;

	last->next = NULL;
	pthread_mutex_lock(&loop->lock);
	was_empty = loop->first == NULL;
	if (was_empty)
		loop->first = first;
	else
		loop->last->next = first;
	loop->last = last;
	pthread_mutex_unlock(&loop->lock);
	if (was_empty)
		uv_async_send(&loop->wake);
}

void loop_stop(struct loop *loop)
{
	pthread_mutex_lock(&loop->lock);
	loop->stopping = true;
	pthread_mutex_unlock(&loop->lock);
	uv_async_send(&loop->wake);
}

void loop_join(struct loop *loop)
{
	pthread_join(loop->thread, NULL);
}

void loop_free(struct loop *loop)
{
	int failed;

	assert(!loop->first);
	failed = uv_loop_close(&loop->uv);
	assert(!failed);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

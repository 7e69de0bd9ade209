/*
 * A loop is a thread that runs a libuv loop and never blocks. Other threads reach it only by
 * posting tasks; all tasks posted while the loop is busy share one wake-up.
 */
#ifndef QUIPU_RUNTIME_LOOP_H
#define QUIPU_RUNTIME_LOOP_H

#include <uv.h>

#include "base/status.h"

/* A task is embedded in the object that is posted. The loop owns the task from loop_post() until
 * the loop calls `run`. */
struct loop_task {
	struct loop_task *next;
	void (*run)(struct loop_task *task);
};

struct loop;

/* Creates a loop without starting it. `after_tasks(context)` runs on the loop each time the loop
 * has run the tasks that were posted; `after_tasks` may be NULL. */
struct loop *loop_new(void (*after_tasks)(void *context), void *context);

/* Returns libuv's loop, for setting up handles. Before loop_start() any thread may use libuv's
 * loop; afterwards only the loop's own thread may use it. */
uv_loop_t *loop_uv(struct loop *loop);

/* Starts the thread, at a lower priority than most other threads (see loop.c). Does not copy
 * `thread_name`. */
void loop_start(struct loop *loop, const char *thread_name);

/* Lowers the calling thread to the priority of a loop. Threads that take commands from lanes call
 * this function; for the reason, see LOOP_NICE in loop.c. */
void loop_lower_priority(void);

/* Tasks run in the order in which they are posted. Thread-safe. */
void loop_post(struct loop *loop, struct loop_task *task);

/* Posts the tasks from `first` to `last`, which are linked by `next`. Thread-safe. */
void loop_post_chain(struct loop *loop, struct loop_task *first, struct loop_task *last);

/*
 * Makes the loop end once its handles are closed. Tasks posted before this call still run, and so
 * do the tasks that they post. Thread-safe.
 */
void loop_stop(struct loop *loop);

/* Blocks until the thread of a started loop has ended. */
void loop_join(struct loop *loop);

/* Frees a loop. Its thread must have ended. If the loop was never started, the caller must have run
 * it to its end with uv_run() instead. */
void loop_free(struct loop *loop);

#endif

/*
 * A loop is a thread that runs a libuv loop and never blocks. Other threads reach it only by
 * posting tasks; whatever is posted while the loop is busy costs one wake-up together.
 */
#ifndef QUIPU_RUNTIME_LOOP_H
#define QUIPU_RUNTIME_LOOP_H

#include <uv.h>

#include "base/status.h"

/* Embedded in whatever is posted; belongs to the loop from post until `run` is called. */
struct loop_task {
	struct loop_task *next;
	void (*run)(struct loop_task *task);
};

struct loop;

/* `after_tasks(context)`, which may be NULL, runs on the loop after each round of posted tasks. */
struct loop *loop_new(void (*after_tasks)(void *context), void *context);

/* For handles that are set up before loop_start(), and on the loop's own thread after. */
uv_loop_t *loop_uv(struct loop *loop);

/* Starts the thread, at a lower priority than others (see loop.c). */
void loop_start(struct loop *loop, const char *thread_name);

/* Gives the calling thread the priority of a loop, for those that take from lanes. */
void loop_lower_priority(void);

/* Any thread. Tasks run in the order posted. */
void loop_post(struct loop *loop, struct loop_task *task);

/* The same for a chain of tasks linked by `next`, from `first` to `last`. */
void loop_post_chain(struct loop *loop, struct loop_task *first, struct loop_task *last);

/*
 * Lets the loop end once its handles are closed. Any thread. Tasks posted before still run, and so
 * do those that came while the last of these ran.
 */
void loop_stop(struct loop *loop);

/* Waits for the thread of a loop that was started. */
void loop_join(struct loop *loop);

/* Frees a loop that has ended, or was never started and has been run to its end by hand. */
void loop_free(struct loop *loop);

#endif

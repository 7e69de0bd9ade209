/*
 * A bell that wakes one waiting thread: how workers that mostly sleep are told that there is
 * something to do, or that they are to end. A ring that comes while nobody waits is kept, so none
 * is lost; many rings before a wait are one.
 */
#ifndef QUIPU_RUNTIME_BELL_H
#define QUIPU_RUNTIME_BELL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct bell {
	pthread_mutex_t lock; /* guards the two below */
	pthread_cond_t changed;
	bool rung;
	bool stopping;
};

void bell_init(struct bell *bell);
void bell_release(struct bell *bell);

/* Any thread, never blocks for long. */
void bell_ring(struct bell *bell);

/* Rings for ever: bell_is_stopping() from now on. Any thread. */
void bell_stop(struct bell *bell);
bool bell_is_stopping(struct bell *bell);

/* Waits for a ring, `ns` at most. One thread at a time. */
void bell_wait(struct bell *bell, int64_t ns);

/* Lets `ns` pass, whatever rings; a stop ends it. Rings are kept. One thread at a time. */
void bell_pause(struct bell *bell, int64_t ns);

#endif

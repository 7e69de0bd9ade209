/*
 * A bell wakes one waiting thread. A thread that mostly sleeps waits for its bell; other threads
 * ring the bell when there is work or when the waiting thread must end. A ring that comes while no
 * thread waits is kept for the next wait, so no ring is lost. Several rings before a wait count as
 * one.
 */
#ifndef QUIPU_RUNTIME_BELL_H
#define QUIPU_RUNTIME_BELL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct bell {
	pthread_mutex_t lock; /* guards `rung` and `stopping` */
	pthread_cond_t changed;
	bool rung;
	bool stopping;
};

void bell_init(struct bell *bell);
void bell_release(struct bell *bell);

/* Thread-safe. Takes a lock that is never held for long. */
void bell_ring(struct bell *bell);

/* From now on bell_is_stopping() is true and no wait blocks. Thread-safe. */
void bell_stop(struct bell *bell);
bool bell_is_stopping(struct bell *bell);

/* Waits at most `ns` nanoseconds for a ring, and consumes the ring. Only one thread may wait at a
 * time. */
void bell_wait(struct bell *bell, int64_t ns);

/* Waits `ns` nanoseconds, or until bell_stop(). Keeps rings for the next bell_wait(). Only one
 * thread may wait at a time. */
void bell_pause(struct bell *bell, int64_t ns);

#endif

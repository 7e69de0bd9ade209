/*
 * A lock that threads get in the order in which they request it. With a plain mutex, a thread that
 * has just released the mutex can immediately lock it again, so a busy committer could keep the
 * janitor and the other lanes waiting for as long as it has work.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_FAIR_LOCK_H
#define QUIPU_ADAPTERS_STORE_SQLITE_FAIR_LOCK_H

#include <pthread.h>
#include <stdint.h>

struct fair_lock {
	pthread_mutex_t mutex; /* guards the members below; held only for moments */
	pthread_cond_t turn;
	uint64_t next_ticket;
	uint64_t serving;
};

void fair_lock_init(struct fair_lock *lock);
void fair_lock_release(struct fair_lock *lock);

/* Takes the lock. Blocks until every thread that requested it earlier has released it. Not
 * recursive. */
void fair_lock_take(struct fair_lock *lock);

/* Releases the lock. Any thread may do this, not only the thread that took the lock. */
void fair_lock_give(struct fair_lock *lock);

#endif

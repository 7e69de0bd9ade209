/*
 * A lock that threads get in the order in which they ask for it. With a plain mutex, the thread
 * that has just released it can take it again at once, so a busy committer could keep the janitor
 * and the other lanes waiting for as long as it has work.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_FAIR_LOCK_H
#define QUIPU_ADAPTERS_STORE_SQLITE_FAIR_LOCK_H

#include <pthread.h>
#include <stdint.h>

struct fair_lock {
	pthread_mutex_t mutex; /* guards the fields below; held only for moments */
	pthread_cond_t turn;
	uint64_t next_ticket;
	uint64_t serving;
};

void fair_lock_init(struct fair_lock *lock);
void fair_lock_release(struct fair_lock *lock);

/* Blocks until every thread that asked earlier has released the lock. Not recursive. */
void fair_lock_take(struct fair_lock *lock);

/* Releases the lock. Any thread may call it, not only the one that took it. */
void fair_lock_give(struct fair_lock *lock);

#endif

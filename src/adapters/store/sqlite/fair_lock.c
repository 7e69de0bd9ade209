#include "adapters/store/sqlite/fair_lock.h"

#include <assert.h>

void fair_lock_init(struct fair_lock *lock)
{
	pthread_mutex_init(&lock->mutex, NULL);
	pthread_cond_init(&lock->turn, NULL);
	lock->next_ticket = 0;
	lock->serving = 0;
}

void fair_lock_release(struct fair_lock *lock)
{
	assert(lock->serving == lock->next_ticket);
	pthread_cond_destroy(&lock->turn);
	pthread_mutex_destroy(&lock->mutex);
}

void fair_lock_take(struct fair_lock *lock)
{
	uint64_t ticket;

	pthread_mutex_lock(&lock->mutex);
	ticket = lock->next_ticket++;
	while (lock->serving != ticket)
		pthread_cond_wait(&lock->turn, &lock->mutex);
	pthread_mutex_unlock(&lock->mutex);
}

void fair_lock_give(struct fair_lock *lock)
{
	pthread_mutex_lock(&lock->mutex);
	assert(lock->serving != lock->next_ticket);
	lock->serving++;
	pthread_mutex_unlock(&lock->mutex);
	pthread_cond_broadcast(&lock->turn);
}

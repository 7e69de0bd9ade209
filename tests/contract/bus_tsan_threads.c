/*
 * C11's threads on top of POSIX's, linked into programs that run under TSan only. librdkafka is
 * built on the former, which the sanitizer of GCC 12 and clang 14 does not know: threads made by
 * thrd_create() crash in its allocator, and what mtx_lock() orders looks like a race. In glibc the
 * types are the same size and thrd_t is pthread_t.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

static_assert(sizeof(mtx_t) >= sizeof(pthread_mutex_t), "mtx_t holds a pthread_mutex_t");
static_assert(sizeof(cnd_t) >= sizeof(pthread_cond_t), "cnd_t holds a pthread_cond_t");

struct start {
	thrd_start_t run;
	void *argument;
};

static int result_of(int error)
{
	switch (error) {
	case 0:
		return thrd_success;
	case ETIMEDOUT:
		return thrd_timedout;
	case EBUSY:
		return thrd_busy;
	case ENOMEM:
		return thrd_nomem;
	default:
		return thrd_error;
	}
}

static void *run(void *context)
{
	struct start start = *(struct start *)context;

	free(context);
	return (void *)(intptr_t)start.run(start.argument);
}

int thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
	struct start *start = malloc(sizeof(*start));

	if (!start)
		return thrd_nomem;
	*start = (struct start){function, argument};
	return result_of(pthread_create(thread, NULL, run, start));
}

int thrd_join(thrd_t thread, int *result)
{
	void *value = NULL;
	int error = pthread_join(thread, &value);

	if (result)
		*result = (int)(intptr_t)value;
	return result_of(error);
}

int thrd_detach(thrd_t thread)
{
	return result_of(pthread_detach(thread));
}

int mtx_init(mtx_t *mutex, int type)
{
	pthread_mutexattr_t attributes;
	int error;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(
		&attributes, type & mtx_recursive ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL);
	error = pthread_mutex_init((pthread_mutex_t *)mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
	return result_of(error);
}

void mtx_destroy(mtx_t *mutex)
{
	pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

int mtx_lock(mtx_t *mutex)
{
	return result_of(pthread_mutex_lock((pthread_mutex_t *)mutex));
}

int mtx_trylock(mtx_t *mutex)
{
	return result_of(pthread_mutex_trylock((pthread_mutex_t *)mutex));
}

int mtx_unlock(mtx_t *mutex)
{
	return result_of(pthread_mutex_unlock((pthread_mutex_t *)mutex));
}

int cnd_init(cnd_t *condition)
{
	return result_of(pthread_cond_init((pthread_cond_t *)condition, NULL));
}

void cnd_destroy(cnd_t *condition)
{
	pthread_cond_destroy((pthread_cond_t *)condition);
}

int cnd_signal(cnd_t *condition)
{
	return result_of(pthread_cond_signal((pthread_cond_t *)condition));
}

int cnd_broadcast(cnd_t *condition)
{
	return result_of(pthread_cond_broadcast((pthread_cond_t *)condition));
}

int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
	return result_of(pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex));
}

int cnd_timedwait(
	cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until)
{
	return result_of(pthread_cond_timedwait(
		(pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until));
}

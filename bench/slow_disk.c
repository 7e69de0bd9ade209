/*
 * A disk whose sync takes longer: preloaded into PostgreSQL, or into Quipu with SQLite, it makes
 * every fsync() and fdatasync() last at least QUIPU_BENCH_SYNC_US microseconds. How much combining
 * gains depends on what a commit costs, and the disk below the bench may be a fast local one where
 * users have a network volume. Both Quipu and its peer run on the same slowed server.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int slow(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
	const char *least_us = getenv("QUIPU_BENCH_SYNC_US");
	long long end_ns = now_ns() + (least_us ? atoll(least_us) * 1000 : 0);
	int result = real(fd);
	long long left_ns = end_ns - now_ns();

	if (left_ns > 0) {
		struct timespec pause = {.tv_nsec = left_ns};

		nanosleep(&pause, NULL);
	}
	return result;
}

int fsync(int fd)
{
	return slow("fsync", fd);
}

int fdatasync(int fd)
{
	return slow("fdatasync", fd);
}

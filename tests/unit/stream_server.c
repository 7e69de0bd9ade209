/*
 * The service of stream_fixture.h as a program, for tests that need a process of its own:
 *
 *   stream_server LOOPS HEARTBEAT_MS STALL_MS
 *
 * On SIGTERM it drains, prints how long that took, and exits with 0 if all clients were gone in
 * time.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/hash.h"
#include "stream_fixture.h"
#include "waiting.h"

static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int main(int argc, char **argv)
{
	static struct stream_fixture fixture;
	int64_t start_ns;
	sigset_t signals;
	int received;
	bool idle;

	if (argc != 4)
		return EXIT_FAILURE;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	raise_file_limit();
	hash_seed();
	stream_fixture_start(&fixture, (size_t)atoi(argv[1]), atoll(argv[2]), atoll(argv[3]));
	printf("quipu listening on http://%s\n", server_address(fixture.server));
	fflush(stdout);
	sigwait(&signals, &received);
	start_ns = clock_steady_ns(&clock_system);
	idle = stream_fixture_drain(&fixture, HANG_MS);
	printf("drained in %lld ms\n",
		(long long)((clock_steady_ns(&clock_system) - start_ns) / NS_PER_MS));
	stream_fixture_stop(&fixture);
	return idle ? EXIT_SUCCESS : EXIT_FAILURE;
}

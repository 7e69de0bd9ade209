#include "effort.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	bool is_running;
	bool can_repeat; /* QUIPU_SEED chooses the seed */
	uint64_t seed;
} current;

/* Of ASan and TSan; NULL in a build without them. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

size_t effort(size_t quick, size_t full)
{
	const char *text = getenv("QUIPU_EFFORT");

	if (!text || strcmp(text, "quick") == 0)
		return quick;
	if (strcmp(text, "full") == 0)
		return full;
	fprintf(stderr, "QUIPU_EFFORT is \"%s\", not \"quick\" or \"full\"\n", text);
	exit(EXIT_FAILURE);
}

static void name_seed(void)
{
	unsigned long long seed = current.seed;

	if (!current.is_running)
		return;
	fprintf(stderr, "failed with seed %llu\n", seed);
	if (current.can_repeat)
		fprintf(stderr, "QUIPU_SEED=%llu repeats this case\n", seed);
}

static void on_abort(int signal_number)
{
	(void)signal_number;
	name_seed();
}

static void name_seed_at_death(void)
{
	static bool is_prepared;

	if (is_prepared)
		return;
	is_prepared = true;
	signal(SIGABRT, on_abort); /* abort() ends the program after the handler has returned */
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(name_seed);
}

void seed_begin(uint64_t seed)
{
	name_seed_at_death();
	current.is_running = true;
	current.seed = seed;
}

void seeds_end(void)
{
	current.is_running = false;
	current.can_repeat = false;
}

void seeds_run(size_t quick, size_t full, void (*run)(uint64_t seed))
{
	const char *only = getenv("QUIPU_SEED");

	for (uint64_t seed = 1; seed <= effort(quick, full); seed++) {
		current.can_repeat = true;
		seed_begin(only ? strtoull(only, NULL, 10) : seed);
		run(current.seed);
	}
	seeds_end();
}

int seed_report(void **state)
{
	(void)state;
	name_seed();
	seeds_end();
	return 0;
}

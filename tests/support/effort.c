#include "effort.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	bool is_running;
	uint64_t seed;
} current;

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

void seed_begin(uint64_t seed)
{
	current.is_running = true;
	current.seed = seed;
}

void seeds_end(void)
{
	current.is_running = false;
}

int seed_report(void **state)
{
	(void)state;
	if (current.is_running)
		fprintf(stderr, "failed with seed %llu\n", (unsigned long long)current.seed);
	seeds_end();
	return 0;
}

#include "cli/variables.h"

#include <assert.h>
#include <stdio.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/nearest.h"
#include "cli/options.h"

#define PREFIX "QUIPU_"
#define NAME_SHOWN_MAX 128
#define NAMES_MAX 128

/* The environment variables that set no option but that some part of the program reads. The prefix
 * QUIPU_ is left out. The last three variables are for test builds. */
static const char *const others[] = {
	"CONFIG", "API_KEY", "FAILPOINTS", "FAILPOINT_GATE", "TEST_CLOCK_OFFSET"};

/* Returns true if QUIPU_`name` looks like a variable that Kubernetes sets for a service whose name
 * begins with "quipu". */
static bool is_of_kubernetes(const char *name)
{
	size_t len = strlen(name);

	return strstr(name, "SERVICE_HOST") || strstr(name, "SERVICE_PORT") ||
	       strstr(name, "PORT_") || (len >= 4 && strcmp(name + len - 4, "PORT") == 0);
}

/* Returns the names of all variables that the program reads, without the prefix QUIPU_, allocated
 * from `arena`. The array ends with NULL. */
static const char *const *known_names(struct arena *arena)
{
	const char **names = arena_array(arena, const char *, NAMES_MAX);
	size_t count = 0;

	assert(options_count() + sizeof(others) / sizeof(others[0]) < NAMES_MAX);
	for (size_t i = 0; i < options_count(); i++) {
		struct option_facts option = options_at(i);
		struct slice name = {.data = option.variable, .len = strlen(option.variable) + 1};

		names[count++] = arena_copy(arena, name).data + strlen(PREFIX);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		names[count++] = others[i];
	names[count] = NULL;
	return names;
}

static bool is_known(const char *name, const char *const *known)
{
	for (size_t i = 0; known[i]; i++) {
		if (strcmp(name, known[i]) == 0)
			return true;
	}
	return false;
}

/* Warns about the variable QUIPU_`name`, unless the program reads it or Kubernetes sets it. */
static void check_variable(const char *name, const char *const *known)
{
	const char *nearest;

	if (is_known(name, known) || is_of_kubernetes(name))
		return;
	nearest = nearest_name(slice_of(name), known);
	log_line(LOG_WARN, "main", "the variable " PREFIX "%s is not known and has no effect%s%s%s",
		name, nearest ? "; did you mean " PREFIX : "", nearest ? nearest : "",
		nearest ? "?" : "");
}

void variables_warn(void)
{
	struct arena arena;
	const char *const *known;

	arena_init(&arena, 16 * 1024);
	known = known_names(&arena);
	for (char **entry = environ; *entry; entry++) {
		char name[NAME_SHOWN_MAX];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
		if (strncmp(name, PREFIX, strlen(PREFIX)) == 0)
			check_variable(name + strlen(PREFIX), known);
	}
	arena_release(&arena);
}

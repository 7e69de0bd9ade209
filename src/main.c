/*
 * The program's commands. What a server is made of is in app/.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "app/app.h"
#include "base/clock.h"
#include "cli/api_key_command.h"
#include "cli/dead_letter_command.h"
#include "cli/health_command.h"
#include "cli/manual.h"
#include "cli/verify_command.h"

#define UP_POLL_NS (20 * NS_PER_MS)

static int fail(int code, const char *why)
{
	fprintf(stderr, "quipu: %s\n", why);
	return code;
}

static void configure_log(const struct settings *settings)
{
	struct slice format = slice_of(settings->log_format);
	enum log_level level = LOG_INFO;
	bool json =
		slice_is(format, "json") || (slice_is(format, "auto") && !isatty(STDERR_FILENO));

	if (log_level_parse(slice_of(settings->log_level), &level))
		log_configure(level, json ? LOG_JSON : LOG_TEXT);
}

/* Passwords, keys and data are in the memory of this process: neither a core dump nor another
 * process of the same user may have it. */
static void hide_memory(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
}

static int run_serve(struct app *app)
{
	if (app->settings.print_config)
		options_print(stdout);
	if (app->settings.print_config && !app->settings.check_config)
		return EXIT_SUCCESS;
	configure_log(&app->settings);
	return app->settings.check_config ? app_check_files(app) : app_serve(app);
}

static bool stores_are_up(const struct app *app)
{
	for (size_t i = 0; i < app->system.store_count; i++) {
		if (!app->system.stores[i]->ops->is_up(app->system.stores[i]))
			return false;
	}
	return true;
}

/* Brings the schema up to date and ends. Waits for a server that is not there yet. */
static int run_migrate(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	int64_t until_ns = clock_steady_ns(&clock_system) + app->settings.deadline_us * NS_PER_US;

	configure_log(&app->settings);
	if (!app_open_stores(app, why))
		return fail(EXIT_FAILURE, why);
	while (!stores_are_up(app)) {
		struct timespec pause = {.tv_nsec = UP_POLL_NS};

		if (clock_steady_ns(&clock_system) > until_ns)
			return fail(EXIT_FAILURE, "a store cannot be reached or migrated; the "
						  "log above says why");
		nanosleep(&pause, NULL);
	}
	app_close(app);
	puts("the schema is up to date");
	return EXIT_SUCCESS;
}

/* Of the command that runs. */
static struct operands operands;

static int run_dlq(struct app *app)
{
	return dlq_run(&app->settings, &operands);
}

static int run_outbox(struct app *app)
{
	return outbox_run(&app->settings, &operands);
}

static int run_verify(struct app *app)
{
	return verify_run(&app->settings, &operands);
}

static int run_keys(struct app *app)
{
	(void)app;
	return keys_run(&operands);
}

static int run_health(struct app *app)
{
	return health_run(&app->settings);
}

static int run_routes(struct app *app)
{
	app_add_routes(app);
	for (size_t i = 0; i < router_count(app->router); i++) {
		const struct route *route = router_at(app->router, i);
		const char *role = router_role(route);

		printf("%s %s %s %s\n", route->method, route->path, access_name(route->access),
			role ? role : "-");
	}
	return EXIT_SUCCESS;
}

static int run_version(struct app *app)
{
	(void)app;
	puts("quipu " QUIPU_VERSION);
	return EXIT_SUCCESS;
}

static int run_help(struct app *app)
{
	(void)app;
	return manual_run(&operands);
}

static const char *const no_flags[] = {NULL};

static const struct {
	const char *name;
	int (*run)(struct app *app);
	bool opens; /* makes a server of the settings, so that they have to go together */
	const char *const *flags; /* of its own, if it takes operands; NULL: it takes none */
} commands[] = {
	{"serve", run_serve, true, NULL},
	{"migrate", run_migrate, true, NULL},
	{"health", run_health, false, NULL},
	{"dlq", run_dlq, false, dlq_flags},
	{"outbox", run_outbox, false, outbox_flags},
	{"verify", run_verify, false, verify_flags},
	{"keys", run_keys, false, keys_flags},
	{"routes", run_routes, true, NULL},
	{"version", run_version, false, NULL},
	{"help", run_help, false, no_flags},
};

int main(int argc, char **argv)
{
	static struct app app = {.data_lock = -1};
	const char *name = argc > 1 ? argv[1] : "help";
	char why[OPTIONS_WHY_SIZE];

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	arena_init(&app.arena, 64 * 1024);
	operands.words = arena_array(&app.arena, const char *, (size_t)argc);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(name, commands[i].name) != 0)
			continue;
		operands.flags = commands[i].flags;
		if (!options_read(&app.settings, operands.flags ? &operands : NULL,
			    argc > 1 ? argc - 2 : 0, argv + 2, why) ||
			(commands[i].opens && !app_check(&app, why)))
			return fail(EXIT_USAGE, why);
		if (!app.settings.core_dumps)
			hide_memory();
		return commands[i].run(&app);
	}
	snprintf(why, sizeof(why), "there is no command \"%s\"; see quipu help", name);
	return fail(EXIT_USAGE, why);
}

/*
 * The commands of the program. serve, migrate and routes assemble a server, or parts of one, from
 * the settings (app/). The other commands need only the settings and their own operands; health,
 * dlq, outbox, erase-user and verify are clients of a running server (cli/).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "app/app.h"
#include "base/clock.h"
#include "cli/api_key_command.h"
#include "cli/dead_letter_command.h"
#include "cli/demo_command.h"
#include "cli/erase_command.h"
#include "cli/health_command.h"
#include "cli/manual.h"
#include "cli/outbox_command.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/variables.h"
#include "cli/verify_command.h"

#define UP_POLL_NS (20 * NS_PER_MS)

static void configure_log(const struct settings *settings)
{
	struct slice format = slice_of(settings->log_format);
	enum log_level level = LOG_INFO;
	bool json =
		slice_is(format, "json") || (slice_is(format, "auto") && !isatty(STDERR_FILENO));

	if (log_level_parse(slice_of(settings->log_level), &level))
		log_configure(level, json ? LOG_JSON : LOG_TEXT);
}

/* Keeps the memory of this process, which holds passwords, keys and data, out of core dumps and
 * away from other processes of the same user. */
static void hide_memory(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
}

/* Carries out --print-config and --check-config. A command with one of these options does nothing
 * else. If `has_files` is true, --check-config also checks the files that the settings name.
 * Returns the exit status of the program. */
static int inspect(struct app *app, bool has_files)
{
	int code;

	if (app->settings.print_config && app->settings.json)
		options_print_json(stdout);
	else if (app->settings.print_config)
		options_print(stdout);
	if (!app->settings.check_config)
		return EXIT_SUCCESS;
	configure_log(&app->settings);
	variables_warn();
	code = has_files ? app_check_files(app) : EXIT_SUCCESS;
	if (code == EXIT_SUCCESS)
		puts(app->settings.json ? "{\"status\":\"ok\"}" : "ok");
	return code;
}

static int run_serve(struct app *app, const struct operands *operands)
{
	(void)operands;
	return app_serve(app);
}

static bool stores_are_up(const struct app *app)
{
	for (size_t i = 0; i < app->health.store_count; i++) {
		if (!app->health.stores[i]->ops->is_up(app->health.stores[i]))
			return false;
	}
	return true;
}

/* Opens the stores, which brings their schema up to date. Waits up to --deadline for a database
 * that cannot be reached yet. */
static bool migrate(struct app *app, char *why)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + app->settings.deadline_us * NS_PER_US;
	struct progress progress;

	if (!app_open_stores(app, why))
		return false;
	progress_begin(&progress, "waiting for the stores", 0);
	while (!stores_are_up(app) && clock_steady_ns(&clock_system) <= until_ns) {
		struct timespec pause = {.tv_nsec = UP_POLL_NS};

		progress_at(&progress, 0);
		nanosleep(&pause, NULL);
	}
	progress_hide(&progress);
	if (!stores_are_up(app)) {
		snprintf(why, OPTIONS_WHY_SIZE,
			"a store cannot be reached or migrated; the log above says why");
		return false;
	}
	return true;
}

static const char *const migrate_flags[] = {
	OWN_SWITCH "distribute", OWN_SWITCH "dry-run", OWN_SWITCH "json", NULL};

/* Prints each statement as {"sql":"…"}. Every statement in `statements` ends with ";\n"; this
 * ending is left out. */
static void print_statements_json(struct app *app, const char *statements)
{
	const char *end;

	for (; (end = strstr(statements, ";\n")); statements = end + 2) {
		struct buffer line = buffer_make(&app->arena, 256);

		buffer_text(&line, "{\"sql\":");
		buffer_json_string(&line, slice_make(statements, (size_t)(end - statements)));
		buffer_text(&line, "}");
		buffer_char(&line, '\0');
		puts(line.data);
	}
}

static bool distribute(struct app *app, bool dry_run, char *why)
{
	char *statements = NULL;
	size_t len;
	FILE *out = app->settings.json ? open_memstream(&statements, &len) : stdout;
	bool ok = app_distribute_stores(app, dry_run, out, why);

	if (app->settings.json) {
		fclose(out);
		print_statements_json(app, statements);
		free(statements);
	}
	return ok;
}

static void print_migrated(const struct app *app, bool distributed)
{
	if (app->settings.json)
		printf("{\"schema\":\"up to date\",\"distributed\":%s}\n",
			distributed ? "true" : "false");
	else
		printf("the schema is up to date%s\n", distributed ? " and distributed" : "");
}

static int run_migrate(struct app *app, const struct operands *operands)
{
	bool dry_run = operands_flag(operands, "dry-run");
	bool distributes = operands_flag(operands, "distribute");
	char why[OPTIONS_WHY_SIZE];
	bool ok;

	if (operands->word_count > 0)
		return report_failure(
			EXIT_USAGE, "%s: migrate takes options only", operands->words[0]);
	if (dry_run && !distributes)
		return report_failure(EXIT_USAGE, "--dry-run requires --distribute");
	ok = migrate(app, why) && (!distributes || distribute(app, dry_run, why));
	if (!ok)
		report_failure(EXIT_FAILURE, "%s", why);
	app_close(app);
	if (!ok)
		return EXIT_FAILURE;
	if (!dry_run)
		print_migrated(app, distributes);
	return EXIT_SUCCESS;
}

static int run_routes(struct app *app, const struct operands *operands)
{
	bool json = operands_flag(operands, "json") != NULL;

	app_add_routes(app);
	for (size_t i = 0; i < router_count(app->router); i++) {
		const struct route *route = router_at(app->router, i);
		const char *role = router_role(route);

		printf(json ? "{\"method\":\"%s\",\"path\":\"%s\",\"access\":\"%s\",\"role\":\"%"
			      "s\"}\n"
			    : "%s %s %s %s\n",
			route->method, route->path, access_name(route->access), role ? role : "-");
	}
	return EXIT_SUCCESS;
}

static int run_version(const struct settings *settings, const struct operands *operands)
{
	(void)settings;
	puts(operands_flag(operands, "json") ? "{\"version\":\"" QUIPU_VERSION "\"}"
					     : "quipu " QUIPU_VERSION);
	return EXIT_SUCCESS;
}

static const char *const no_flags[] = {NULL};
static const char *const json_flag[] = {OWN_SWITCH "json", NULL};

struct command_entry {
	const char *name;
	/* Exactly one of the next two members is set. run_app() is called only if app_check()
	 * accepts the settings. */
	int (*run_app)(struct app *app, const struct operands *operands);
	int (*run)(const struct settings *settings, const struct operands *operands);
	/* the command's own flags; NULL if the command takes neither such flags nor words */
	const char *const *flags;
	/* If true, main() configures the log before it runs the command, and warns about
	 * environment variables that have no effect. */
	bool logs;
};

static const struct command_entry commands[] = {
	{"serve", run_serve, NULL, NULL, true},
	{"migrate", run_migrate, NULL, migrate_flags, true},
	{"demo", NULL, demo_run, demo_flags, false},
	{"copy", NULL, copy_run, copy_flags, true},
	{"routes", run_routes, NULL, json_flag, false},
	{"health", NULL, health_run, json_flag, true},
	{"dlq", NULL, dlq_run, dlq_flags, true},
	{"outbox", NULL, outbox_run, outbox_flags, true},
	{"erase-user", NULL, erase_run, erase_flags, true},
	{"verify", NULL, verify_run, verify_flags, true},
	{"keys", NULL, keys_run, keys_flags, false},
	{"version", NULL, run_version, json_flag, false},
	{"help", NULL, manual_run, no_flags, false},
};

static const struct command_entry *find_command(const char *name)
{
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	}
	return NULL;
}

/* Returns whether --help is among the arguments of the command. */
static bool wants_help(int argc, char **argv)
{
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return true;
	}
	return false;
}

/*
 * Checks the words after the command for two mistakes: a word after a command that takes only the
 * flag --json, and a first word that is a misspelt verb. Reports such a mistake and returns false.
 * The command itself checks its words for all other mistakes.
 */
static bool words_fit(const struct command_entry *command, const struct operands *operands)
{
	const char *word = operands->word_count > 0 ? operands->words[0] : NULL;
	const char *meant = word ? manual_meant_verb(command->name, word) : NULL;

	if (word && command->flags == json_flag)
		report_failure(EXIT_USAGE, "\"%s\" is not an option", word);
	else if (meant)
		report_failure(
			EXIT_USAGE, "\"%s\" is not understood; did you mean %s?", word, meant);
	return !meant && !(word && command->flags == json_flag);
}

int main(int argc, char **argv)
{
	static struct app app = {.data_lock = -1};
	const char *name = argc > 1 ? argv[1] : "help";
	const struct command_entry *command = find_command(name);
	struct operands operands = {0};
	char why[OPTIONS_WHY_SIZE];

	if (!command)
		return report_failure(
			EXIT_USAGE, "there is no command \"%s\"%s", name, manual_guess(name));
	if (wants_help(argc, argv))
		return manual_help(command->name);
	umask(077); /* only the user who runs the program may read the files that it creates */
	arena_init(&app.arena, 64 * 1024);
	operands.flags = command->flags;
	operands.words = arena_array(&app.arena, const char *, (size_t)argc);
	if (!options_read(&app.settings, command->flags ? &operands : NULL, argc > 1 ? argc - 2 : 0,
		    argv + 2, why) ||
		(command->run_app && !app_check(&app, why)))
		return report_failure(EXIT_USAGE, "%s", why);
	if (!words_fit(command, &operands))
		return EXIT_USAGE;
	if (!app.settings.core_dumps)
		hide_memory();
	if (app.settings.print_config || app.settings.check_config)
		return inspect(&app, command->run_app != NULL);
	if (command->logs) {
		configure_log(&app.settings);
		variables_warn();
	}
	return command->run_app ? command->run_app(&app, &operands)
				: command->run(&app.settings, &operands);
}

/*
 * Reports that a server has started. Always prints a line with the address, for scripts. If stdout
 * is a terminal, also prints the data folder, the engines, the roles, the console's address and the
 * options that differ from their defaults. If stderr is not a terminal, logs the version, the
 * address, the roles and the engines in one line.
 */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/app.h"
#include "base/log.h"

static void write_roles(const struct app *app, struct buffer *out)
{
	for (size_t i = 0; i < ROLE_COUNT; i++) {
		if (!app_plays(app, role_find(slice_of(role_name(i)))))
			continue;
		if (out->len > 0)
			buffer_text(out, ", ");
		buffer_text(out, role_name(i));
	}
}

/* Writes the name and the engine of each store, bus and cache that /readyz lists. */
static void write_engines(const struct app *app, struct buffer *out)
{
	for (size_t i = 0; i < app->health.dependency_count; i++) {
		const struct dependency *dependency = &app->health.dependencies[i];

		buffer_format(
			out, "%s%s %s", i == 0 ? "" : ", ", dependency->name, dependency->engine);
	}
}

static void write_address(const struct app *app, struct buffer *out)
{
	buffer_format(out, "%s://%s", app->tls ? "https" : "http", server_address(app->server));
}

static void print_for_people(
	const struct app *app, struct slice address, struct slice roles, struct slice engines)
{
	/* A process without the lock does not use the data folder. The folder may still exist, from
	 * an earlier start with other stores. */
	char *data = app->data_lock >= 0 ? realpath(app->settings.data, NULL) : NULL;

	printf("  data     %s (%.*s)\n", data ? data : "on servers only", (int)engines.len,
		engines.data);
	printf("  roles    %.*s\n", (int)roles.len, roles.data);
	if (app->console)
		printf("  console  %.*s/console\n", (int)address.len, address.data);
	fputs("  options  ", stdout);
	options_print_changed(stdout);
	free(data);
}

void app_announce(const struct app *app)
{
	struct arena arena;
	struct buffer address, roles, engines;

	arena_init(&arena, 4096);
	address = buffer_make(&arena, 128);
	roles = buffer_make(&arena, 128);
	engines = buffer_make(&arena, 512);
	write_address(app, &address);
	write_roles(app, &roles);
	write_engines(app, &engines);
	printf("quipu listening on %.*s\n", (int)address.len, address.data);
	if (isatty(STDOUT_FILENO))
		print_for_people(
			app, buffer_slice(&address), buffer_slice(&roles), buffer_slice(&engines));
	fflush(stdout);
	if (!isatty(STDERR_FILENO)) {
		const struct log_field fields[] = {
			{.name = "version", .value = SLICE(QUIPU_VERSION)},
			{.name = "address", .value = buffer_slice(&address)},
			{.name = "roles", .value = buffer_slice(&roles)},
			{.name = "engines", .value = buffer_slice(&engines)},
		};

		log_line_with(
			LOG_INFO, "main", fields, sizeof(fields) / sizeof(fields[0]), "started");
	}
	arena_release(&arena);
}

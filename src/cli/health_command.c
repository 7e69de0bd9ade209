#include "cli/health_command.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/client.h"

static int fail(int code, const char *why)
{
	fprintf(stderr, "quipu: %s\n", why);
	return code;
}

static int ask(struct client *client)
{
	struct client_answer answer;
	char why[CLIENT_WHY_SIZE];
	bool ok;

	if (!client_get(client, "/healthz", &answer, why))
		return fail(EXIT_FAILURE, why);
	ok = answer.http_status == 200;
	snprintf(why, sizeof(why), "the quipu at %s answers with HTTP %d", client_server(client),
		answer.http_status);
	client_answer_release(&answer);
	if (!ok)
		return fail(EXIT_FAILURE, why);
	puts("ok");
	return EXIT_SUCCESS;
}

int health_run(const struct settings *settings)
{
	char why[CLIENT_WHY_SIZE];
	struct client *client;
	int code;

	client = client_open(settings, why);
	if (!client)
		return fail(EXIT_USAGE, why);
	/* It asks its own machine. Whether others can trust a certificate is no question of being
	 * alive. */
	if (!*settings->server && !*settings->ca_file)
		client_trust_anyone(client);
	code = ask(client);
	client_close(client);
	return code;
}

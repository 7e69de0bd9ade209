#include "cli/health_command.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/client.h"
#include "cli/report.h"

static int ask(struct client *client, bool json)
{
	struct client_answer answer;
	char why[CLIENT_WHY_SIZE];
	int status;

	if (!client_get(client, "/healthz", &answer, why))
		return report_failure(EXIT_FAILURE, "%s", why);
	status = answer.http_status;
	client_answer_release(&answer);
	if (status != 200)
		return report_failure(EXIT_FAILURE, "the server at %s answered with HTTP %d",
			client_server(client), status);
	puts(json ? "{\"status\":\"ok\"}" : "ok");
	return EXIT_SUCCESS;
}

int health_run(const struct settings *settings, const struct operands *operands)
{
	char why[CLIENT_WHY_SIZE];
	struct client *client;
	int code;

	client = client_open(settings, why);
	if (!client)
		return report_failure(EXIT_USAGE, "%s", why);
	/* Without --server and --ca-file, accept any certificate: the server is on this machine,
	 * and a wrong certificate does not mean that the server is down. */
	if (!*settings->server && !*settings->ca_file)
		client_trust_anyone(client);
	code = ask(client, operands_flag(operands, "json") != NULL);
	client_close(client);
	return code;
}

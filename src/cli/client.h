/*
 * How the operator's commands speak to a running server: JSON over HTTP, blocking, with libcurl.
 * They never open its stores, because the data folder belongs to the server.
 *
 * Main thread, while there is no other: libcurl handles SIGPIPE by itself.
 */
#ifndef QUIPU_CLI_CLIENT_H
#define QUIPU_CLI_CLIENT_H

#include "base/json.h"
#include "base/slice.h"
#include "base/status.h"
#include "cli/options.h"

#define CLIENT_WHY_SIZE 512
#define CLIENT_TARGET_SIZE 2048

struct client;

struct client_answer {
	int http_status;
	json_t *json;                  /* an object; client_answer_release() */
	char next[CLIENT_TARGET_SIZE]; /* the target of the next page, "": there is none */
};

/*
 * A client of the server at --server (http://host:port or https://…, perhaps with user:password@),
 * or where one that is told to --listen so would be. It shows the API key in the file that
 * --api-key-file names, or else in QUIPU_API_KEY, to every route, where there is one; a flag for
 * the key itself is not there, because flags are seen by everybody on the machine. Nothing is sent
 * yet. NULL: `why` (CLIENT_WHY_SIZE) says what is wrong with them.
 */
QP_MUST_CHECK struct client *client_open(const struct settings *settings, char *why);
void client_close(struct client *client);

/* The server's address as it may be shown: without user and password. */
const char *client_server(const struct client *client);

/*
 * One request for `target`, a path with or without a query. true: something that speaks JSON has
 * answered, whatever its status; `answer` must be released. false: `why` (CLIENT_WHY_SIZE).
 */
QP_MUST_CHECK bool client_get(
	struct client *client, const char *target, struct client_answer *answer, char *why);

/* The same with a body of JSON, which may be empty, under an Idempotency-Key of its own. */
QP_MUST_CHECK bool client_post(struct client *client, const char *target, struct slice body,
	struct client_answer *answer, char *why);

/* Writes what an answer that is no success says for people: which key would help, the first wrong
 * field, its detail, or at least its number. */
void client_read_problem(
	const struct client *client, const struct client_answer *answer, char why[CLIENT_WHY_SIZE]);

/* The text of a field, {NULL, 0}: there is none, or it is no text. */
struct slice client_text(const json_t *object, const char *name);

void client_answer_release(struct client_answer *answer);

#endif

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

#define CLIENT_WHY_SIZE 512
#define CLIENT_TARGET_SIZE 2048

struct client;

struct client_answer {
	int http_status;
	json_t *json;                  /* an object; client_answer_release() */
	char next[CLIENT_TARGET_SIZE]; /* the target of the next page, "": there is none */
};

/*
 * Writes the address of the server to speak to: `server`, or where one that is told to `listen` so
 * would be. false: `why` (CLIENT_WHY_SIZE) says why there is none.
 */
QP_MUST_CHECK bool client_find_server(
	const char *server, const char *listen, char url[CLIENT_TARGET_SIZE], char *why);

/*
 * `server` is http://host:port or https://…, perhaps with user:password@; nothing is sent yet.
 * NULL: `why` (CLIENT_WHY_SIZE) says what is wrong with it.
 */
QP_MUST_CHECK struct client *client_open(const char *server, char *why);
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

void client_answer_release(struct client_answer *answer);

#endif

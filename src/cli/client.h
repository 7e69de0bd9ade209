/*
 * The HTTP client with which the operator's commands call a running server. It sends and receives
 * JSON through libcurl, and its functions block. The commands never open the stores themselves,
 * because the data folder belongs to the server.
 *
 * Main thread only, and only in a process without other threads: during a call, libcurl ignores
 * SIGPIPE for the whole process.
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
struct client_group;

struct client_answer {
	int http_status;
	json_t *json;                  /* an object; client_answer_release() frees it */
	char next[CLIENT_TARGET_SIZE]; /* the target of the next page, or "" */
};

/*
 * Creates a client for the server at --server (http://host:port or https://…, perhaps with
 * user:password@). If --server is not set, uses the address in --listen, and https if --tls-cert is
 * set. Trusts the CAs in --ca-file; if --ca-file is not set, trusts the CAs of the system. If there
 * is an API key in --api-key-file or QUIPU_API_KEY, sends it with every request. There is no flag
 * for the key itself, because everyone on the machine can see flags.
 *
 * Sends nothing yet. If the settings cannot be used, returns NULL and writes the reason to `why`
 * (CLIENT_WHY_SIZE bytes).
 */
QP_MUST_CHECK struct client *client_open(const struct settings *settings, char *why);
void client_close(struct client *client);

/* From now on, the client accepts every certificate and sends no API key. Use this only for
 * requests that need no secrecy. */
void client_trust_anyone(struct client *client);

/* From now on, the client sends this header with every request, e.g. "X-User-Id: alice". */
void client_add_header(struct client *client, const char *line);

/* Returns the server's address without user and password, for use in messages. */
const char *client_server(const struct client *client);

/*
 * Sends a GET for `target`, a path with or without a query. Returns true if the server answered
 * with a JSON object, whatever the status; the caller releases `answer`. On failure returns false
 * and writes the reason to `why` (CLIENT_WHY_SIZE bytes).
 */
QP_MUST_CHECK bool client_get(
	struct client *client, const char *target, struct client_answer *answer, char *why);

/* Sends a POST with a JSON body, which may be empty, and a fresh Idempotency-Key. Otherwise like
 * client_get(). */
QP_MUST_CHECK bool client_post(struct client *client, const char *target, struct slice body,
	struct client_answer *answer, char *why);

/* A POST for client_group_post(). `target` and `body` are as in client_post(). */
struct client_post {
	struct client *client;
	const char *target;
	struct slice body;
	struct client_answer answer; /* set by client_group_post() */
};

/* Creates a group, which keeps the connections of clients that send at the same time. The clients
 * must be closed before the group is freed. */
struct client_group *client_group_new(void);
void client_group_free(struct client_group *group);

/*
 * Sends all posts at once, each from a client of its own, and waits for all answers. Returns true
 * if every answer is a JSON object, whatever its status; the caller releases the answers. On
 * failure returns false, writes a reason to `why` (CLIENT_WHY_SIZE bytes) and releases all answers
 * itself.
 */
QP_MUST_CHECK bool client_group_post(
	struct client_group *group, struct client_post *posts, size_t count, char *why);

/* Writes to `why` the reason for an answer that is not a success. The reason says which API key is
 * needed, or which field is invalid, or repeats the answer's detail or title. If the answer has
 * none of these, the reason is the HTTP status. */
void client_read_problem(
	const struct client *client, const struct client_answer *answer, char why[CLIENT_WHY_SIZE]);

/* Returns the string in the member `name`, or {NULL, 0} if it is absent or not a string. */
struct slice client_text(const json_t *object, const char *name);

/* Returns whether `name`, which the server sent, can be the name of a service. Only then may it be
 * printed or become part of a target. */
bool client_is_name(const char *name);

void client_answer_release(struct client_answer *answer);

#endif

/*
 * A request lives from its first byte to its answer. It belongs to the loop of its connection.
 * While its command is in a lane, the thread behind the lane may use the request's arena, but no
 * other member. If the connection is lost while the command is in a lane, the request outlives the
 * connection.
 */
#ifndef QUIPU_HTTP_REQUEST_H
#define QUIPU_HTTP_REQUEST_H

#include "access/caller.h"
#include "base/arena.h"
#include "http/path.h"
#include "ports/answer.h"
#include "runtime/command.h"
#include "runtime/lane.h"

#define REQUEST_HEADERS_MAX 64
#define REQUEST_PARAMS_MAX 4

struct connection;
struct exchange;
struct http_worker;
struct route;
struct stream;

struct header {
	struct slice name;
	struct slice value;
};

struct request {
	struct arena arena;
	struct http_worker *worker;
	struct connection *connection; /* NULL if the client is gone */
	struct request *next;          /* links the requests of a connection, or the pool */
	struct exchange *exchange;     /* in HTTP/2, the request's exchange; otherwise NULL */

	struct slice method;
	struct slice target;
	struct path path;
	struct query query; /* empty if the route ignores the query */
	struct header headers[REQUEST_HEADERS_MAX];
	size_t header_count;
	struct slice body;

	const struct route *route; /* NULL if no route matched */
	uint64_t address;          /* a hash of the client's network address */
	struct caller caller;
	struct slice params[REQUEST_PARAMS_MAX];
	struct slice id; /* X-Request-Id, from the client or chosen by the server */
	/* the client's traceparent, or a new traceparent if the client's is not valid; empty if the
	 * client sent none */
	struct slice traceparent;
	int64_t started_ns;
	int64_t deadline_ns;
	size_t queued_bytes;     /* the memory charged to the connection for this request */
	struct command *command; /* the command that the request waits for, or NULL */
	/* the lane for `command`, while the protocol defers the command; otherwise NULL */
	struct lane *lane;
	void (*answered)(
		struct request *request, struct command *command); /* see request_submit_then() */
	struct answer answer;  /* http_status is 0 until the request is answered */
	struct stream *stream; /* the stream that is to answer the request, or NULL */
	bool is_stream;        /* the answer begins an event stream, so it has no Content-Length */
	bool is_large;         /* the request waits for a command whose answer may be large */
	bool safe;             /* GET or HEAD */
	bool head_only;
	/* the request's token was refused; the connection ends, so that each guess of a token needs
	 * a new connection */
	bool is_guess;
	bool keep_alive;
	bool is_abandoned; /* HTTP/2: the request was reset while its command was in a lane */
};

/*
 * Returns the value of the first header with this name, ignoring case, or {NULL, 0} if there is
 * none.
 */
struct slice request_header(const struct request *request, const char *name);

/* Returns how many headers the request has with this name. */
size_t request_header_count(const struct request *request, const char *name);

/* Returns whether the Content-Type is application/json or missing. */
bool request_has_json(const struct request *request);

/* Answers the request. Call it once, on the loop. If a stream was prepared for the request, ends
 * the stream. */
void request_answer(struct request *request, struct answer answer);

/*
 * Submits `command`, allocated from the request's arena, to `lane`; the command's answer becomes
 * the request's answer. Answers with OVERLOADED instead if the lane is full, or if the answer may
 * be large and the worker is full (see worker_is_full()). Call it on the loop, while the request
 * waits for no other command; never blocks.
 */
void request_submit(struct request *request, struct lane *lane, struct command *command);

/*
 * Makes the request wait for `command`, which never enters a lane. This is for callers that spread
 * the work over other commands: when those are done, the caller sets the answer of `command` and
 * runs the task of `command`, once and on the loop. Returns false, after answering with OVERLOADED,
 * if the answer may be large and the worker is full (see worker_is_full()).
 */
QP_MUST_CHECK bool request_expect(struct request *request, struct command *command);

/*
 * Like request_submit(), except that the command's answer does not become the request's answer.
 * Instead, when the command is back, `answered(request, command)` runs on the loop. `answered` must
 * answer the request, start the request's stream, or submit the request's next command with
 * request_submit_then(). `answered` does not run if the client is gone. If the lane does
 * not accept the command, `answered` does not run, and the request is answered with OVERLOADED.
 */
void request_submit_then(struct request *request, struct lane *lane, struct command *command,
	void (*answered)(struct request *request, struct command *command));

#endif

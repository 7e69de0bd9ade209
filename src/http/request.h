/*
 * A request, from its first byte to its answer. It belongs to the loop of its connection. While its
 * command is in a lane, the thread behind the lane may use the request's arena, but no other
 * member. If the connection is lost meanwhile, the request outlives it.
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
	struct exchange *exchange;     /* its exchange in HTTP/2; otherwise NULL */

	struct slice method;
	struct slice target;
	struct path path;
	struct query query; /* empty if the route ignores it */
	struct header headers[REQUEST_HEADERS_MAX];
	size_t header_count;
	struct slice body;

	const struct route *route; /* NULL if no route matched */
	uint64_t address;          /* a hash of the client's network address */
	struct caller caller;
	struct slice params[REQUEST_PARAMS_MAX];
	struct slice id; /* X-Request-Id: the client's, or one that the server chose */
	/* the client's traceparent, or a new one if the client's is not valid; may be empty */
	struct slice traceparent;
	int64_t started_ns;
	int64_t deadline_ns;
	size_t queued_bytes;     /* the memory charged to its connection */
	struct command *command; /* the command that is in a lane, or NULL */
	/* the lane of a command that the protocol has deferred; otherwise NULL */
	struct lane *lane;
	void (*answered)(
		struct request *request, struct command *command); /* see request_submit_then() */
	struct answer answer;  /* http_status is 0 until it is answered */
	struct stream *stream; /* the stream that answers it, or NULL */
	bool is_stream;        /* the answer is the head of a stream and has no length */
	bool is_large;         /* a read in progress whose answer may be large */
	bool safe;             /* GET or HEAD */
	bool head_only;
	/* its token was refused; the connection ends, so that each guess needs a new connection */
	bool is_guess;
	bool keep_alive;
	bool is_abandoned; /* the client has reset it (HTTP/2) while its command is in a lane */
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

/* Answers the request. Call it once, on the loop. Ends a stream that was prepared for the
 * request. */
void request_answer(struct request *request, struct answer answer);

/*
 * Submits `command`, allocated from the request's arena, to `lane`; its answer becomes the
 * request's. If the lane is full, or if the answer may be large and no memory is left for clients,
 * answers with OVERLOADED at once. Call it once, on the loop; never blocks.
 */
void request_submit(struct request *request, struct lane *lane, struct command *command);

/*
 * For callers that spread the work over other commands: the request waits for `command`, which
 * never enters a lane. Once the answer of `command` is set, the caller runs the command's task, on
 * the loop and only once. Returns false, after answering with OVERLOADED, if the answer may be
 * large and no memory is left for clients.
 */
QP_MUST_CHECK bool request_expect(struct request *request, struct command *command);

/*
 * The same as request_submit(), but when the command is back, `answered` runs on the loop and
 * either answers the request or starts its stream. It does not run if the client is gone or the
 * lane was full.
 */
void request_submit_then(struct request *request, struct lane *lane, struct command *command,
	void (*answered)(struct request *request, struct command *command));

#endif

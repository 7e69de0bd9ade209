/*
 * A request, from its first byte to its answer. It belongs to the loop of its connection. While its
 * command is in a lane, the thread that serves the lane may use the request's arena and nothing
 * else of it. A request outlives its connection if that is lost meanwhile.
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
	struct request *next;          /* on the same connection, or in the pool */
	struct exchange *exchange;     /* in HTTP/2; otherwise NULL */

	struct slice method;
	struct slice target;
	struct path path;
	struct query query; /* empty if the route ignores it */
	struct header headers[REQUEST_HEADERS_MAX];
	size_t header_count;
	struct slice body;

	const struct route *route; /* NULL if none matched */
	uint64_t address;          /* a hash of where the client connects from */
	struct caller caller;
	struct slice params[REQUEST_PARAMS_MAX];
	struct slice id; /* X-Request-Id: the client's, or one that we chose */
	struct slice
		traceparent; /* the client's, or a new one if that is not valid; may be empty */
	int64_t started_ns;
	int64_t deadline_ns;
	size_t queued_bytes;     /* the memory that its connection counts for it */
	struct command *command; /* in a lane, or NULL */
	struct lane *lane;       /* where the command goes, if it has to wait before that */
	void (*answered)(struct request *request, struct command *command); /* or NULL */
	struct answer answer;  /* http_status is 0 until it is answered */
	struct stream *stream; /* the stream that answers it, or NULL */
	bool is_stream;        /* the answer is the head of a stream and has no length */
	bool is_large;         /* is being looked up, and its answer may be large */
	bool safe;             /* GET or HEAD */
	bool head_only;
	bool is_guess; /* its token was refused; the connection ends, so each guess needs another */
	bool keep_alive;
	bool is_abandoned; /* the client of HTTP/2 has reset it while its command is in a lane */
};

/*
 * Returns the value of the first header of that name, in any case, or {NULL, 0} if there is none.
 */
struct slice request_header(const struct request *request, const char *name);

/* Returns how many headers of that name the request has. */
size_t request_header_count(const struct request *request, const char *name);

/* Whether the Content-Type is application/json, or there is none. */
bool request_has_json(const struct request *request);

/* Answers the request. On the loop, once. Ends a stream that was prepared for the request. */
void request_answer(struct request *request, struct answer answer);

/*
 * Submits `command`, allocated from the request's arena, to `lane`; its answer becomes the
 * request's. If the lane is full, or the answer may be large and clients have no memory left,
 * answers with OVERLOADED at once. On the loop, once; never blocks.
 */
void request_submit(struct request *request, struct lane *lane, struct command *command);

/*
 * For callers that carry the work out with other commands: the request now waits for `command`,
 * which is in no lane. When its answer is set, the caller runs its task, on the loop and once.
 * Returns false, after answering with OVERLOADED, if the answer may be large and clients have no
 * memory left.
 */
QP_MUST_CHECK bool request_expect(struct request *request, struct command *command);

/*
 * The same, but when the command is back, `answered` runs on the loop and either answers the
 * request or starts its stream. It does not run if the client is gone or the lane was full.
 */
void request_submit_then(struct request *request, struct lane *lane, struct command *command,
	void (*answered)(struct request *request, struct command *command));

#endif

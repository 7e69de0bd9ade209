/*
 * A request, from its first byte to its answer. It belongs to the loop of its connection, except
 * while a command made of it travels through a lane: then the worker may use its arena and nothing
 * else of it. It outlives a connection that is lost meanwhile.
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
	struct connection *connection; /* NULL: the client is gone */
	struct request *next;          /* the next on the same connection, or in the pool */

	struct slice method;
	struct slice target;
	struct path path;
	struct header headers[REQUEST_HEADERS_MAX];
	size_t header_count;
	struct slice body;

	const struct route *route; /* NULL: none matched */
	struct caller caller;
	struct slice params[REQUEST_PARAMS_MAX];
	struct slice id; /* X-Request-Id, theirs or ours */
	int64_t started_ns;
	int64_t deadline_ns;
	size_t queued_bytes;     /* what it held in memory when it was started */
	struct command *command; /* travelling through a lane, or NULL */
	void (*answered)(struct request *request, struct command *command); /* or NULL */
	struct answer answer;  /* http_status 0: not yet */
	struct stream *stream; /* that answers it, NULL: none */
	bool is_stream;        /* the answer is the head of a stream, and has no length */
	bool safe;             /* GET or HEAD */
	bool head_only;
	bool keep_alive;
};

/* The value of the header of that name, {NULL, 0} if there is none. Names are not case-sensitive.
 */
struct slice request_header(const struct request *request, const char *name);

/* How often a header of that name was sent. */
size_t request_header_count(const struct request *request, const char *name);

/* Answers now. On the loop, once. A stream that was prepared for the request is gone. */
void request_answer(struct request *request, struct answer answer);

/*
 * Sends `command`, allocated from the request's arena, through `lane`; its answer becomes the
 * request's. `bytes` is what the command adds to the request in memory. A full lane is answered
 * with OVERLOADED at once. On the loop, once.
 */
void request_submit(struct request *request, struct lane *lane, struct command *command);

/*
 * The same, but when the command is back, `answered` runs on the loop and decides what becomes of
 * its answer: it answers the request, or starts its stream. It does not run if the client is gone,
 * or the lane was full.
 */
void request_submit_then(struct request *request, struct lane *lane, struct command *command,
	void (*answered)(struct request *request, struct command *command));

#endif

/*
 * One client connection: its socket, TLS, what waits to be written, and its place among those that
 * the loop serves. What it speaks is its protocol's business (protocol.h, http1.h, http2.h).
 * Private to http/, and everything is for the thread of its loop. A connection goes through these
 * states:
 *
 *   greeting   with TLS only: the handshake is not done, and there is nothing to parse
 *   undecided  nothing has arrived, or only some of the preface of HTTP/2
 *   speaking   bytes go to the protocol, which reads, serves and answers requests
 *   lingering  the last answer is sent and our side is shut down; input is thrown away until the
 *              client closes too, so that it can read the answer instead of getting a reset
 *   closed     uv_close() is under way; requests that are still in lanes have lost their pointer
 */
#ifndef QUIPU_HTTP_CONNECTION_H
#define QUIPU_HTTP_CONNECTION_H

#include "http/http1.h"
#include "http/protocol.h"
#include "http/worker.h"

/* A turn of a connection ends with this much work: a round of HTTP/1.1, which reads at most one
 * request, is two; a frame of HTTP/2 is one, and a request one more. */
#define PUMP_WORK_MAX 64

struct connection {
	uv_tcp_t tcp;
	struct http_worker *worker;
	struct connection *before;
	struct connection *next;
	struct connection *before_dirty; /* in the worker's list `dirty` or `resting` */
	struct connection *next_dirty;
	const struct protocol *protocol;
	struct http1 http1;
	struct http2 *http2;     /* NULL unless it speaks HTTP/2 */
	struct tls_session *tls; /* NULL for plain HTTP */
	uint64_t address;        /* a hash of the client's address, without the port */

	struct slice input;   /* not parsed yet; in the worker's buffer, or in `kept` */
	char *kept;           /* owned copy of input that had to wait */
	size_t write_backlog; /* bytes that libuv has taken and not written yet */
	size_t pump_bytes;    /* written in this turn of its loop */
	size_t pump_work;     /* done in this turn of its loop */
	size_t preface_seen;  /* bytes of the preface of HTTP/2, which tells the protocol */
	size_t queued_bytes;  /* memory of the requests that have started */
	size_t discarded_bytes;
	int64_t accepted_ns;
	int64_t active_ns; /* when an answer was last written, or the client last read */
	struct client_place place;
	bool is_undecided; /* the client has not shown yet what it speaks */
	bool is_dirty;
	bool is_reading;
	bool is_pumping;
	bool is_resting;        /* the others have their turn first */
	bool input_ended;       /* the client sends no more */
	bool last_request_seen; /* no further request is read */
	bool is_lingering;
	bool is_closed;
};

/*
 * Serves the connected socket `fd`, which it owns from now on. connection_count includes it
 * already.
 */
void connection_open(struct http_worker *worker, int fd);

/* Moves everything forward that can move: writes answers, starts requests, parses, closes. May
 * close this connection and, to free memory, others. */
void connection_pump(struct connection *connection);

/*
 * Closes it at once. Its requests are dropped; those in lanes learn that the client is gone. The
 * memory is freed after the callers on the stack have returned to the loop.
 */
void connection_close(struct connection *connection);

/* Closes it, or answers 408, if one of its deadlines has passed. Checks its stream, too. */
void connection_check_deadlines(struct connection *connection, int64_t now_ns);

/* Whether so much waits to be written that nothing more is read or started. */
bool connection_is_backed_up(const struct connection *connection);

/* Whether bytes have arrived that the loop has not read yet. */
bool connection_has_unread_input(const struct connection *connection);

/* ---- connection_output.c; each of these may close the connection ---- */

/* Writes `bytes`, which the caller may change afterwards. */
void connection_write(struct connection *connection, struct slice bytes);

/* Writes several parts, encrypted if the connection has TLS. Everything that a client gets to read
 * passes here. */
void connection_write_parts(struct connection *connection, const uv_buf_t *parts, size_t count);

/* Sends the output of the TLS session. */
void connection_send_output(struct connection *connection);

/* Keeps what waits for the client out of the kernel, where a newer value could not replace it.
 * Notices sooner that the client is gone. */
void connection_favour_new_values(struct connection *connection);

/* ---- request.c ---- */

/* Takes an empty request from the worker's pool, for the connection `context`. */
struct request *request_new(void *context);

/* Starts a request: sets its deadline and, unless it was refused, calls its route's handler. */
void request_start(struct request *request);

/*
 * The request is about to be answered: chooses an id if the client sent none, applies the style of
 * its path, begins its stream if it has one, counts and logs.
 */
void request_finish(struct request *request);

/* The client is gone: frees the request, now or when its command comes back from a lane. */
void request_drop(struct request *request);

/* Returns a request to the pool. It must not be in a lane. */
void request_free(struct request *request);

/* Counts the memory of the request for its connection. Call it when that takes the request on. */
void request_charge(struct request *request);

/* Counts what the request has grown since then. */
void request_count_bytes(struct request *request);

/* Submits the command of a request that the protocol has deferred. */
void request_submit_now(struct request *request);

/* Returns how much memory the request occupies. */
size_t request_bytes(const struct request *request);

#endif

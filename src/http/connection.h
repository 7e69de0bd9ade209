/*
 * One client connection. Private to http/, and everything is for the thread of its loop. A
 * connection goes through these states; several can apply at once (it reads while requests are in
 * the queue):
 *
 *   greeting   with TLS only: the handshake is not done, and there is nothing to parse
 *   reading    bytes go to the parser; a complete request becomes `held`
 *   held       a request waits to start: a change starts only when everything before it on this
 *              connection is answered, and nothing starts after a change. Reading stops meanwhile.
 *   queue      requests have started, in order; their answers leave from the front only
 *   streaming  the last answer is a stream, which goes on; see stream.h
 *   lingering  the last answer is sent and our side is shut down; input is thrown away until the
 *              client closes too, so that it can read the answer instead of getting a reset
 *   closed     uv_close() is under way; requests that are still in lanes have lost their pointer
 */
#ifndef QUIPU_HTTP_CONNECTION_H
#define QUIPU_HTTP_CONNECTION_H

#include "http/parser.h"
#include "http/worker.h"

struct connection {
	uv_tcp_t tcp;
	struct http_worker *worker;
	struct connection *before;
	struct connection *next;
	struct connection *before_dirty; /* in the worker's list `dirty` or `resting` */
	struct connection *next_dirty;
	struct parser parser;
	struct tls_session *tls; /* NULL for plain HTTP */
	uint64_t address;        /* a hash of the client's address, without the port */

	struct request *first; /* the queue */
	struct request *last;
	size_t queued;
	struct request *held;
	struct stream *stream; /* NULL if it has none */

	struct slice input;   /* not parsed yet; in the worker's buffer, or in `kept` */
	char *kept;           /* owned copy of input that had to wait */
	size_t write_backlog; /* bytes that libuv has taken and not written yet */
	size_t pump_bytes;    /* written in this turn of its loop */
	size_t queued_bytes;  /* memory of the requests in the queue */
	int64_t accepted_ns;
	int64_t active_ns; /* when an answer was last written, or the client last read */
	struct client_place place;
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

/* Writes the answers at the front of the queue. Returns whether there was one. */
bool connection_write_answers(struct connection *connection);

/* Writes 100 Continue, unless answers to earlier requests are still to come. */
void connection_write_continue(struct connection *connection);

/* ---- request.c ---- */

/* Takes an empty request from the worker's pool, for the connection `context`. */
struct request *request_new(void *context);

/* Returns a request to the pool. It must not be in a lane. */
void request_free(struct request *request);

/* Returns how much memory the request occupies. */
size_t request_bytes(const struct request *request);

#endif

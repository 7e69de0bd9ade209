/*
 * One client connection. Private to http/. State, all on the loop's thread:
 *
 *   greeting  where clients speak TLS: until the handshake is done there is nothing to parse
 *   reading   bytes go to the parser; a complete request becomes `held`
 *   held      a request that may not start yet: a change waits until everything before it on this
 *             connection is answered, and nothing starts behind a change. Reading stops meanwhile.
 *   queue     requests that have started, in order; answers leave from the front only
 *   streaming the last answer is a stream, which goes on; see stream.h
 *   lingering the last answer is out and our side is shut; input is thrown away until the client
 *             closes too, so that it gets to read the answer instead of a reset
 *   closed    uv_close() is under way; requests still in lanes have lost their connection pointer
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
	struct connection *before_dirty; /* or resting */
	struct connection *next_dirty;
	struct parser parser;
	struct tls_session *tls; /* NULL: it speaks plain HTTP */

	struct request *first; /* the queue */
	struct request *last;
	size_t queued;
	struct request *held;
	struct stream *stream; /* NULL: it has none */

	struct slice input;   /* not parsed yet; in the loop's buffer, or in `kept` */
	char *kept;           /* owned copy of input that had to wait */
	size_t write_backlog; /* bytes given to libuv and not written */
	size_t pump_bytes;    /* written in this turn of its loop */
	size_t queued_bytes;  /* of the requests in the queue */
	int64_t accepted_ns;
	int64_t active_ns; /* when the client last had its answers, or went on reading them */
	struct client_place place;
	bool is_dirty;
	bool is_reading;
	bool is_pumping;
	bool is_resting;  /* others have their turn first */
	bool input_ended; /* the client sends no more */
	bool last_request_seen;
	bool is_lingering;
	bool is_closed;
};

/* Serves the connected socket `fd`, which it owns from now on. connection_count includes it
 * already.
 */
void connection_open(struct http_worker *worker, int fd);

/* Moves everything forward that can move: parses, starts, writes, closes. */
void connection_pump(struct connection *connection);

/* Ends it at once. */
void connection_close(struct connection *connection);

/* Ends it if one of its deadlines has passed. */
void connection_check_deadlines(struct connection *connection, int64_t now_ns);

/* Whether bytes have arrived that the loop has not read yet. */
bool connection_has_unread_input(const struct connection *connection);

/* Moves it to the end of its queue of clients that we wait for, as if its turn began now. */
void connection_restart_turn(struct connection *connection);

/* ---- connection_output.c; the connection may be closed after each ---- */

/* Writes `bytes`, which need not stay. */
void connection_write(struct connection *connection, struct slice bytes);

/* The same for several. Everything that is said to a client in the clear passes here. */
void connection_write_parts(struct connection *connection, const uv_buf_t *parts, size_t count);

/* Sends what the TLS session has for the client. */
void connection_send_output(struct connection *connection);

/* Writes the answers at the front of the queue. true: something was written. */
bool connection_write_answers(struct connection *connection);

/* Tells a client that waits for it to send the body. */
void connection_write_continue(struct connection *connection);

/* ---- request.c ---- */

/* A new request of the connection `context`, from the pool of its loop, and back. */
struct request *request_new(void *context);
void request_free(struct request *request);

/* What it holds in memory. */
size_t request_bytes(const struct request *request);

#endif

/*
 * A connection is one client's socket, with the TLS session, the bytes that wait to be written, and
 * the connection's position among the connections of its loop. The connection's protocol
 * (protocol.h, http1.h, http2.h) reads the requests and writes the answers. Private to http/; used
 * only on the loop's thread. A connection goes through these states:
 *
 *   greeting   only with TLS: the handshake is not complete, so there is nothing to parse yet
 *   undecided  nothing has arrived, or only a part of the preface of HTTP/2
 *   speaking   bytes go to the protocol, which reads, serves and answers requests
 *   lingering  the last answer is sent and our side is shut down; input is discarded until the
 *              client closes its side, because closing earlier could reset the connection before
 *              the client has read the answer
 *   closed     uv_close() is under way; requests whose commands are still in lanes no longer point
 *              to the connection
 */
#ifndef QUIPU_HTTP_CONNECTION_H
#define QUIPU_HTTP_CONNECTION_H

#include "http/http1.h"
#include "http/protocol.h"
#include "http/worker.h"

/* After this much work in one pump, a connection lets the other connections go first. Each call of
 * protocol->advance() counts as 2; in HTTP/1.1 such a call reads at most one request. In HTTP/2
 * each frame adds 1, and each complete request adds 1 more. */
#define PUMP_WORK_MAX 64

struct connection {
	uv_tcp_t tcp;
	struct http_worker *worker;
	struct connection *before;
	struct connection *next;
	struct connection *before_dirty; /* links of the worker's list `dirty` or `resting` */
	struct connection *next_dirty;
	const struct protocol *protocol;
	struct http1 http1;
	struct http2 *http2;     /* NULL unless the client speaks HTTP/2 */
	struct tls_session *tls; /* NULL for plain HTTP */
	uint64_t address;        /* a hash of the client's address, without the port */

	struct slice input;   /* bytes not parsed yet; in the worker's buffer, or in `kept` */
	char *kept;           /* a copy of input that is not parsed yet; owned by the connection */
	size_t write_backlog; /* bytes of the writes that libuv has accepted but not yet finished */
	size_t unreceived;    /* see connection_note_reading() */
	size_t pump_bytes;    /* bytes written since the last pump began */
	size_t pump_work;     /* work done since the last pump began; see PUMP_WORK_MAX */
	size_t preface_seen;  /* how many bytes of the HTTP/2 preface have arrived */
	size_t queued_bytes;  /* memory charged for requests and answers; see request_charge() */
	size_t discarded_bytes;
	int64_t accepted_ns;
	/* the last time at which the connection was opened or began to linger, an answer or an
	 * event was written while the backlog was empty, libuv finished a write, or the client was
	 * seen to read an answer */
	int64_t active_ns;
	struct client_place place;
	bool is_undecided; /* it is not yet known which protocol the client speaks */
	bool is_dirty;
	bool is_reading;
	bool is_pumping;
	bool is_resting;        /* waits until the loop has polled the other connections */
	bool input_ended;       /* the client will send nothing more */
	bool last_request_seen; /* no further request will be read */
	bool is_lingering;
	bool is_closed;
};

/*
 * Serves the connected socket `fd` and owns it from now on. The caller has already counted it in
 * the worker's `connection_count` and `socket_count`.
 */
void connection_open(struct http_worker *worker, int fd);

/* Does everything that can be done now: writes answers, starts requests, parses, closes. May close
 * this connection and, to free memory, other connections. */
void connection_pump(struct connection *connection);

/*
 * Closes the connection at once and drops its requests. Sets `client_gone` in the commands that are
 * in lanes, so that the threads behind the lanes skip the commands that they have not started. The
 * memory of the connection is freed only after all callers on the stack have returned to the loop.
 */
void connection_close(struct connection *connection);

/* Checks the deadlines of the connection, its requests and its streams. If a deadline has passed,
 * answers 408, or ends the request, the stream or the whole connection. Also sends the heartbeats
 * that are due. */
void connection_check_deadlines(struct connection *connection, int64_t now_ns);

/* Returns true if so much output is waiting that no input should be read and no request started. */
bool connection_is_backed_up(const struct connection *connection);

/* Returns whether bytes have arrived that the loop has not read yet. */
bool connection_has_unread_input(const struct connection *connection);

/* ---- connection_output.c; functions that write or send may close the connection ---- */

/* Writes `bytes`, which the caller may change as soon as the call has returned. */
void connection_write(struct connection *connection, struct slice bytes);

/* Writes several pieces of bytes, encrypted if the connection has TLS. All answers and values of
 * streams pass through here. */
void connection_write_parts(struct connection *connection, const uv_buf_t *parts, size_t count);

/* Sends the encrypted bytes that the TLS session has ready. */
void connection_send_output(struct connection *connection);

/*
 * Called at each check of the deadlines while there is a backlog, unless the connection carries an
 * event stream, which has a stricter deadline of its own. Counts the client as active if its
 * machine has received bytes since the last call: libuv reports a write only once it is finished,
 * and for a long answer and a slow client that may take longer than the idle timeout.
 */
void connection_note_reading(struct connection *connection);

/* HTTP/1.1 calls this when the connection begins to carry an event stream. Keeps the kernel's send
 * buffer small, so that waiting values stay in the stream, where newer values can replace them.
 * Also makes the kernel notice sooner that a client is gone. */
void connection_favour_new_values(struct connection *connection);

/* ---- request.c ---- */

/* Returns an empty request from the worker's pool. `context` is the connection. */
struct request *request_new(void *context);

/* Starts a request: sets its deadline and, unless it was refused, calls its route's handler. */
void request_start(struct request *request);

/*
 * Prepares the answer of a request for writing: chooses an X-Request-Id if the client sent none,
 * applies the error style of the path, begins the stream if there is one, completes the answer
 * (negotiation.h), and counts and logs the answer.
 */
void request_finish(struct request *request);

/* Frees a request whose client is gone: at once or, if its command is in a lane, when the command
 * is back. */
void request_drop(struct request *request);

/* Returns a request to the pool. Its command must not be in a lane. */
void request_free(struct request *request);

/* Charges the memory of the request to its connection. Called once: in HTTP/1.1 when the request
 * starts, in HTTP/2 when the request begins to arrive. */
void request_charge(struct request *request);

/* Charges the memory that the request has gained since it was last charged. */
void request_count_bytes(struct request *request);

/* Submits the command that the request waits for. If the protocol has deferred the command (see
 * `defers` in protocol.h), the protocol calls this as soon as the command may be submitted. */
void request_submit_now(struct request *request);

/* Returns how much memory the request occupies. */
size_t request_bytes(const struct request *request);

#endif

/*
 * The HTTP server has one listening socket and, for each core, one worker with its own loop. Each
 * accepted socket goes to the worker with the fewest connections and stays there. All functions
 * here are for the main thread unless stated otherwise.
 *
 * This is how the files of http/ call each other. Everything in the box runs on the thread of one
 * loop; only the arrows that leave or enter the box cross threads.
 *
 *   main thread     server_new(), server_listen(), server_start(), server_drain(), server_free()
 *                          | loop_post()
 *   +--- loop thread ------v--------------------------------------------------+
 *   |  server         accepts, on the loop of the first worker                |
 *   |    | connection_open(), on the loop of the worker that gets the socket  |
 *   |  worker         its connections and their order, limits, the sweep      |
 *   |    | connection_pump()                                                  |
 *   |  connection     socket -> tls -> protocol                               |
 *   |  http1, http2   -> parser, nghttp2: bytes become a request              |
 *   |    |            parser -> admission: may the request go on?             |
 *   |    |            admission -> router, guard: its route, its caller       |
 *   |    | route->handle()                                                    |
 *   |  request        request_answer(), or request_submit() ----------------------> lane
 *   |    |                                                                    |       |
 *   |    | worker_mark_dirty() <---- command_list_deliver(), loop_post() --- committer, reader
 *   |    v                                                                    |
 *   |  http1_output, http2_output    response renders the answer              |
 *   |    |            -> connection_output -> tls -> socket                   |
 *   |    ^ http1_write_event()                                                |
 *   |  stream         an answer that goes on; keeps only the newest value     |
 *   |    ^ stream_offer_event()                                               |
 *   |  hub            the streams of each key <--- loop_post(), hub_publish() --- any thread
 *   +-------------------------------------------------------------------------+
 */
#ifndef QUIPU_HTTP_SERVER_H
#define QUIPU_HTTP_SERVER_H

#include "base/clock.h"
#include "http/admission.h"
#include "http/router.h"

struct server_limits {
	size_t connections_max;
	/* how many requests and event streams one HTTP/2 connection may have at once */
	size_t exchanges_max;
	/* how much memory the requests and the unread answers of all clients may occupy */
	size_t client_bytes_max;
	int64_t head_timeout_ns; /* from the first byte of a request to the end of its head, and
				  * from accepting a connection to the end of its TLS handshake */
	int64_t body_timeout_ns; /* from the end of the head to the end of the body */
	/* how long a connection may be idle, and how long an answer may stay unread */
	int64_t idle_timeout_ns;
	int64_t deadline_ns;     /* from request_start() to the answer */
	int64_t heartbeat_ns;    /* how long a stream may be quiet before a heartbeat is sent */
	int64_t stream_stall_ns; /* how long a stream's client may stop reading */
};

struct server;

/* Creates the loops, but binds no address yet. `router` and `admission` must outlive the server. */
struct server *server_new(size_t loops, const struct server_limits *limits, struct router *router,
	const struct admission *admission);

/*
 * Makes all loops use `clock`, which must outlive the server, instead of the machine's clock. Call
 * it before server_start().
 */
void server_use_clock(struct server *server, const struct clock *clock);

/*
 * Requires clients to speak TLS, with the certificate of `tls`, which must outlive the server. Call
 * it before server_start().
 */
struct tls_context;
void server_use_tls(struct server *server, struct tls_context *tls);

/* Logs every answer (access_log.h). Call it before server_start(). */
void server_log_access(struct server *server);

/*
 * Binds and listens on "host:port" or "[v6]:port". May block on a name lookup. On failure returns
 * false and writes a sentence for the user into `why`.
 */
QP_MUST_CHECK bool server_listen(
	struct server *server, const char *address, char *why, size_t size);

enum address_reach { ADDRESS_INVALID, ADDRESS_LOOPBACK, ADDRESS_PUBLIC };

/*
 * Returns ADDRESS_LOOPBACK if `address` can be reached only from this machine, ADDRESS_PUBLIC if
 * other machines can reach it, too, and ADDRESS_INVALID if it cannot be resolved. May block on a
 * name lookup.
 */
enum address_reach server_address_reach(const char *address);

/* Returns the address as it was bound, e.g. "127.0.0.1:8080". */
const char *server_address(const struct server *server);

/* Starts the loops, which accept connections from now on. */
void server_start(struct server *server);

/*
 * Stops accepting connections, ends the streams, and closes each connection once its requests are
 * answered. Connections that the kernel has already accepted are still served. Does not wait.
 */
void server_drain(struct server *server);

/* Blocks until every request is answered and every connection is closed, then returns true. Returns
 * false if requests or connections are still left at monotonic time `until_ns`. */
bool server_wait_idle(struct server *server, int64_t until_ns);

/* Closes the remaining connections, ends the loops and frees everything; blocks. No command may be
 * in a lane. */
void server_free(struct server *server);

/* A metrics collector (context: the server). Thread-safe. */
void server_collect(void *server, struct buffer *page);

#endif

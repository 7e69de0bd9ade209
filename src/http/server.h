/*
 * The HTTP server: one listening socket, one worker loop per core, connections handed out to the
 * loop that has the fewest. Functions are for the main thread.
 */
#ifndef QUIPU_HTTP_SERVER_H
#define QUIPU_HTTP_SERVER_H

#include "base/clock.h"
#include "http/admission.h"
#include "http/router.h"

struct server_limits {
	size_t connections_max;
	size_t client_bytes_max; /* requests being read and answers not read, all connections */
	int64_t head_timeout_ns; /* from the first byte of a request to the end of its head, and
				  * from accepting a connection to the end of its TLS handshake */
	int64_t body_timeout_ns; /* from the end of the head to the end of the body */
	int64_t idle_timeout_ns; /* between requests, and for a client that does not read */
	int64_t deadline_ns;     /* from the end of a request to its answer */
	int64_t heartbeat_ns;    /* on a stream that has nothing else to say */
	int64_t stream_stall_ns; /* for a client of a stream that does not read */
};

struct server;

/* `router` and `admission` outlive the server. Nothing is bound yet. */
struct server *server_new(size_t loops, const struct server_limits *limits, struct router *router,
	const struct admission *admission);

/*
 * Connections live by `clock`, which outlives the server, instead of the machine's clock. Any
 * thread reads it. Before server_start().
 */
void server_use_clock(struct server *server, const struct clock *clock);

/*
 * Clients speak TLS, with the certificate of `tls`, which outlives the server. Before
 * server_start().
 */
struct tls_context;
void server_use_tls(struct server *server, struct tls_context *tls);

/*
 * Binds and listens on "host:port" or "[v6]:port". On failure writes a sentence for the user into
 * `why` and returns false.
 */
QP_MUST_CHECK bool server_listen(
	struct server *server, const char *address, char *why, size_t size);

enum address_reach { ADDRESS_INVALID, ADDRESS_LOOPBACK, ADDRESS_PUBLIC };

/* From where `address` can be reached: this machine only, or others too. */
enum address_reach server_address_reach(const char *address);

/* "127.0.0.1:8080", as bound. */
const char *server_address(const struct server *server);

/* Starts the loops; connections are accepted from here on. */
void server_start(struct server *server);

/*
 * Stops accepting (what the kernel has accepted is still served) and lets connections finish.
 * Streams end at once.
 */
void server_drain(struct server *server);

/* Waits until every request is answered and every connection closed. false: not by `until_ns`. */
bool server_wait_idle(struct server *server, int64_t until_ns);

/* Closes what is left, ends the loops, frees everything. No command may be under way. */
void server_free(struct server *server);

/* A metrics collector (context: the server). */
void server_collect(void *server, struct buffer *page);

#endif

/*
 * A receiver of webhooks in this process, a thread a connection, that does with a request what its
 * Idempotency-Key asks for: the part before the first dot is a status to answer with, or one of
 *
 *   hang      read the request, answer nothing        close     hang up without an answer
 *   cuthead   hang up within the head                 cutbody   hang up within the body of a 200
 *   trickle   a head that comes byte by byte for ever dribble   a 200 whose body does
 *   headers   a head without an end                   endless   a 200 whose body has no end
 *   full      a 200 with a body of 64 KiB             over      one byte more
 *   early     100 and 103 before the 200              earlycut  100, then hang up
 *   garbage   what is not HTTP                        moved     a redirect to /elsewhere
 *   later     429 with Retry-After: 7                 never     503 with Retry-After: 99999999
 */
#ifndef QUIPU_TESTS_HOOK_SERVER_H
#define QUIPU_TESTS_HOOK_SERVER_H

#include <stdbool.h>
#include <stddef.h>

struct hook_server;

struct hook_request {
	char *head; /* with its lines */
	char *body;
	size_t body_len;
	int connection; /* the number of the connection it came by, from 1 */
};

/* On a free port of 127.0.0.1. `tls`: with a certificate that nobody trusts. */
struct hook_server *hook_server_start(bool tls);

/* Hangs up on everybody. */
void hook_server_stop(struct hook_server *server);

int hook_server_port(const struct hook_server *server);

/* How many requests have been read so far. */
size_t hook_server_count(struct hook_server *server);

/* Waits until that many have been read; fails the test if they never are. */
void hook_server_wait(struct hook_server *server, size_t count);

/* In the order in which they were read. Valid until the server stops. */
struct hook_request hook_server_request(struct hook_server *server, size_t index);

/* The value of a header; false: it is not there. */
bool hook_request_header(
	const struct hook_request *request, const char *name, char *value, size_t size);

#endif

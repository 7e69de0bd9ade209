/* Declares the functions of server.c that workers call. Private to http/: only server.c and
 * worker.c include it. */
#ifndef QUIPU_HTTP_SERVER_INTERNAL_H
#define QUIPU_HTTP_SERVER_INTERNAL_H

#include "http/server.h"

struct http_worker;

/*
 * If fewer than `most` streams are open, counts one more and returns true; otherwise returns false.
 * All workers share this count, so two workers cannot both open the last allowed stream. Call
 * server_return_stream() when the stream is closed or ends. Thread-safe.
 */
bool server_take_stream(struct server *server, size_t most);
void server_return_stream(struct server *server);

/*
 * Accepts connections again if the server had to pause because it ran out of file descriptors or
 * memory. Every worker calls this on its loop with each sweep, but only the call on the accepting
 * loop has an effect.
 */
void server_resume_accepting(struct server *server, const struct http_worker *worker);

#endif

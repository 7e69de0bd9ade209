/* The part of the server that its workers use. Private to http/: server.c and worker.c. */
#ifndef QUIPU_HTTP_SERVER_INTERNAL_H
#define QUIPU_HTTP_SERVER_INTERNAL_H

#include "http/server.h"

struct http_worker;

/* Returns how many streams are open, over all workers. Thread-safe. */
int64_t server_stream_count(const struct server *server);

/*
 * Accepts connections again if the server had to pause because it ran out of file descriptors.
 * Every worker calls it on its loop with each sweep, but only the call on the accepting loop has an
 * effect.
 */
void server_resume_accepting(struct server *server, const struct http_worker *worker);

#endif

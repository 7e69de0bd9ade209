/* What a worker needs of the server that owns it. Private to http/: server.c and worker.c. */
#ifndef QUIPU_HTTP_SERVER_INTERNAL_H
#define QUIPU_HTTP_SERVER_INTERNAL_H

#include "http/server.h"

struct http_worker;

/* Returns how many streams are open, over all workers. Any thread. */
int64_t server_stream_count(const struct server *server);

/*
 * Accepts connections again, if the server had to pause because it ran out of file descriptors.
 * Every worker calls it on its loop with each sweep; it does nothing except on the loop that
 * accepts.
 */
void server_resume_accepting(struct server *server, const struct http_worker *worker);

#endif

/*
 * Writes the lines of --access-log: one line at level info for every answer. The fields of a line
 * have fixed names. A line has the route's template instead of the path, and no query, because the
 * path and the query may contain ids of persons. Each line has the client's network address.
 */
#ifndef QUIPU_HTTP_ACCESS_LOG_H
#define QUIPU_HTTP_ACCESS_LOG_H

#include "http/request.h"

/*
 * Logs a request whose answer is about to be written. Runs on the loop, and blocks while the
 * terminal or pipe at standard error is full.
 */
void access_log(const struct request *request, int64_t duration_ns);

#endif

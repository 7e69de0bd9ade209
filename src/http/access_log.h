/*
 * The lines of --access-log: one line at level info for every answer. The members have fixed names
 * and no personal data: a line has the route's template instead of the path, and no query or
 * headers.
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

/*
 * --access-log: one line at level info for every answer, with named members and no personal data:
 * the route's template instead of the path, and neither query nor headers.
 */
#ifndef QUIPU_HTTP_ACCESS_LOG_H
#define QUIPU_HTTP_ACCESS_LOG_H

#include "http/request.h"

/*
 * Logs the request, whose answer is about to be written on its connection. On the loop; blocks
 * while the terminal or pipe at standard error is full.
 */
void access_log(const struct request *request, int64_t duration_ns);

#endif

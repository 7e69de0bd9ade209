/*
 * The last steps before an answer is written, whichever protocol writes it: gzip if the client
 * accepts it, the headers for web pages of other origins, and Vary, which says what the answer
 * depends on.
 */
#ifndef QUIPU_HTTP_NEGOTIATION_H
#define QUIPU_HTTP_NEGOTIATION_H

#include "http/request.h"

/* What a loop compresses in one sweep at most; further answers are sent as they are. Compressing
 * this much takes about a fifth of the time between two sweeps. */
#define COMPRESS_PER_SWEEP (4 * 1024 * 1024)

/* Changes the request's answer, which must be complete. On the loop. */
void negotiation_finish(struct request *request);

#endif

/*
 * Completes an answer before it is written, in any protocol. Compresses the body with gzip if the
 * client accepts that. Adds the headers that let web pages of other origins read the answer
 * (cors.h). Adds Vary, which names the request headers that the answer depends on.
 */
#ifndef QUIPU_HTTP_NEGOTIATION_H
#define QUIPU_HTTP_NEGOTIATION_H

#include "http/request.h"

/* How many bytes a loop compresses at most between two sweeps; further answers are sent
 * uncompressed. Compressing COMPRESS_PER_SWEEP bytes takes about a seventh of the time between two
 * sweeps. */
#define COMPRESS_PER_SWEEP (4 * 1024 * 1024)

/* Completes the request's answer, whose status, headers and body must be set. Called on a loop's
 * thread. */
void negotiation_finish(struct request *request);

#endif

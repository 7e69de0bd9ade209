/*
 * Lets web pages of other origins use the server (CORS, as the Fetch standard defines it). A
 * browser lets a page read our answers, and send requests that carry a token, only if our answers
 * allow the page's origin. The operator decides which origins are allowed (--cors-origins). CORS
 * only makes browsers less strict; admission still checks every caller.
 *
 * No function blocks. Call functions with a `request` on the thread of the request's loop.
 * `origins` is a list separated by commas, or "*" for all origins, or empty, which switches CORS
 * off.
 */
#ifndef QUIPU_HTTP_CORS_H
#define QUIPU_HTTP_CORS_H

#include "http/request.h"

/* Returns whether `origin` has the form scheme://host[:port] in which browsers send origins. */
bool cors_origin_is_valid(struct slice origin);

/* Returns whether the request is a preflight, which a browser sends to find out whether it may send
 * the real request. */
bool cors_is_preflight(const struct request *request);

/* Returns whether the request that this preflight announces has the method GET or HEAD. */
bool cors_preflight_is_safe(const struct request *request);

/*
 * Returns the answer to a preflight, allocated from the request's arena: 204, or a refusal if the
 * page's origin is not in `origins`. `allow` lists the methods of the path, such as "GET, HEAD".
 */
struct answer cors_preflight(struct slice origins, struct request *request, struct slice allow);

/* Returns whether answers depend on the page's origin, so that Vary must name Origin. */
bool cors_depends_on_origin(struct slice origins);

/* Adds the headers that let pages of the listed origins read the request's answer, even if the
 * answer is a refusal. */
void cors_sign(struct slice origins, struct request *request);

#endif

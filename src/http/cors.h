/*
 * Web pages of other origins (CORS, as the Fetch standard defines it). A browser lets a page read
 * our answers, and send requests that carry a token, only if the answer names the page's origin.
 * Which origins may is the operator's decision (--cors-origins). This only adds to what browsers
 * allow: who the caller is and what it may do is decided elsewhere, as for every client.
 *
 * All functions are for the loop and never block. `origins` is a list separated by commas, "*" for
 * all, or empty, which switches everything here off.
 */
#ifndef QUIPU_HTTP_CORS_H
#define QUIPU_HTTP_CORS_H

#include "http/request.h"

/* Whether `origin` has the form scheme://host[:port] in which browsers send it. */
bool cors_origin_is_valid(struct slice origin);

/* Whether the request asks, before the real one, if that may be sent. */
bool cors_is_preflight(const struct request *request);

/* Whether the request that this preflight announces would only read. */
bool cors_preflight_is_safe(const struct request *request);

/*
 * Returns the answer to a preflight for a path with these methods ("GET, HEAD"), in the request's
 * arena: 204, or a refusal if the page's origin is not in the list.
 */
struct answer cors_preflight(struct slice origins, struct request *request, struct slice allow);

/* Whether answers differ from origin to origin, which Vary must then say. */
bool cors_depends_on_origin(struct slice origins);

/* Adds to the request's answer, whatever it is, the headers by which a browser shows it to pages of
 * the listed origins. */
void cors_sign(struct slice origins, struct request *request);

#endif

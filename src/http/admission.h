/*
 * Decides about a request as soon as its head is complete. Is the request valid, beyond its
 * grammar? Is it meant for this server? Which route serves it, may the caller use that route, and
 * does the route accept the parameters of the query? A refusal becomes the request's answer; the
 * connection then discards the body and stays usable.
 */
#ifndef QUIPU_HTTP_ADMISSION_H
#define QUIPU_HTTP_ADMISSION_H

#include "access/guard.h"
#include "http/request.h"
#include "http/router.h"

struct admission {
	const struct router *router;
	struct guard *guard; /* NULL if everyone who reaches the server is trusted */
	/*
	 * Without authentication the server trusts everyone who reaches it. On loopback that
	 * includes every web page in the user's browser, so Host must be a loopback name (or one of
	 * `allowed_hosts`), and changes must not come from a foreign page.
	 */
	bool guard_browser;
	struct slice allowed_hosts; /* separated by commas */
	struct slice cors_origins;  /* see cors.h */
};

/* Sets the request's path, query, route, params, caller and id. If the request is refused, also
 * sets its answer. Called on a loop's thread; never blocks. */
void admission_decide(
	const struct admission *admission, struct request *request, int http_major, int http_minor);

/* Returns whether the client waits for 100 Continue before it sends the body. */
bool admission_wants_continue(const struct request *request);

#endif

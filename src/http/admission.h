/*
 * Decides whether to serve a request, as soon as the head of the request is complete. Admission
 * checks the HTTP version and the headers Host and Expect, and protects a server without API keys
 * from foreign web pages (see `guard_browser`). It finds the route, and checks whether the caller
 * may use that route and whether the route accepts the parameters of the query.
 *
 * A refusal becomes the request's answer. The connection then discards the body and stays usable,
 * with two exceptions. After a refused token the connection ends. In HTTP/1.1 the connection also
 * ends if the client of the refused request waits for 100 Continue.
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
	 * Set if the server listens on loopback without API keys. The server then trusts everyone
	 * who can reach it, but every web page in the user's browser can reach the server too. So
	 * Host must be a loopback name (or one of `allowed_hosts`), and changes must not come from
	 * a foreign page.
	 */
	bool guard_browser;
	struct slice allowed_hosts; /* separated by commas */
	struct slice cors_origins;  /* see cors.h */
};

/* Sets the request's path, query, route, params, caller, id and traceparent. If the request is
 * refused, also sets its answer. Called on a loop's thread; never blocks. */
void admission_decide(
	const struct admission *admission, struct request *request, int http_major, int http_minor);

/* Returns whether the client waits for 100 Continue before it sends the body. */
bool admission_wants_continue(const struct request *request);

#endif

/*
 * Decides, once the head of a request is there, whether it may go on: is it well-formed beyond the
 * grammar, is it meant for this server, which route is it for, and may its caller take it. A
 * refusal is written into the request's answer; the connection then reads the body, throws it away,
 * and goes on.
 */
#ifndef QUIPU_HTTP_ADMISSION_H
#define QUIPU_HTTP_ADMISSION_H

#include "access/guard.h"
#include "http/request.h"
#include "http/router.h"

struct admission {
	const struct router *router;
	struct guard *guard; /* NULL: whoever reaches the server is trusted */
	/*
	 * Without authentication the server trusts whoever reaches it. On loopback that includes
	 * every web page in the user's browser, so Host must be a loopback name (or one of
	 * `allowed_hosts`), and changes must not come from a foreign page.
	 */
	bool guard_browser;
	struct slice allowed_hosts; /* comma separated */
};

/* Sets the request's path, route, params, caller and id, and its answer where it is refused. On the
 * loop.
 */
void admission_decide(
	const struct admission *admission, struct request *request, int http_major, int http_minor);

/* Whether the client waits for 100 Continue before it sends the body. */
bool admission_wants_continue(const struct request *request);

#endif

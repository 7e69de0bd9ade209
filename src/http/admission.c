/*
 * Several checks run before a handler, in this order: protocol, browser, route, syntax of the
 * query, caller, names of the query's parameters. The first check that fails sets the answer, and
 * the remaining checks are skipped. A browser's preflight is answered before the caller is checked,
 * because a preflight carries no token.
 *
 * The checks run when the head is complete and before the body is read. So the route, and with it
 * the limit for the body, is known before the body is read. And the request of a client that waits
 * for 100 Continue can be refused before the client sends the body.
 */
#include "http/admission.h"

#include "base/text.h"
#include "base/trace.h"
#include "http/cors.h"

#define REQUEST_ID_MAX 128

static void refuse(struct request *request, enum status status, const char *why)
{
	request->answer = answer_problem(&request->arena, status, "%s", why);
}

static bool host_allowed(const struct admission *admission, struct slice host)
{
	struct slice rest = admission->allowed_hosts;
	struct slice name = host_without_port(host);

	if (host_is_loopback(host))
		return true;
	while (rest.data) {
		struct slice allowed = slice_trim(slice_cut(&rest, ','));

		if (allowed.len > 0 && slice_equal_nocase(allowed, name))
			return true;
	}
	return false;
}

static bool origin_allowed(const struct admission *admission, struct slice origin)
{
	if (slice_starts_with(origin, "http://"))
		origin = slice_make(origin.data + 7, origin.len - 7);
	else if (slice_starts_with(origin, "https://"))
		origin = slice_make(origin.data + 8, origin.len - 8);
	else
		return false; /* the origin is "null", or has a scheme other than http and https */
	return host_allowed(admission, origin);
}

static bool is_preflight(const struct admission *admission, const struct request *request)
{
	return admission->cors_origins.len > 0 && cors_is_preflight(request);
}

static bool is_safe_preflight(const struct admission *admission, const struct request *request)
{
	return is_preflight(admission, request) && cors_preflight_is_safe(request);
}

static void check_browser(const struct admission *admission, struct request *request)
{
	struct slice host = request_header(request, "Host");
	struct slice origin = request_header(request, "Origin");
	struct slice site = request_header(request, "Sec-Fetch-Site");

	if (host.data && !host_allowed(admission, host))
		refuse(request, STATUS_FORBIDDEN_HOST,
			"the Host of the request is not a name of this server; see "
			"--allowed-hosts");
	else if (request->safe || is_safe_preflight(admission, request))
		return;
	else if (origin.data && !origin_allowed(admission, origin))
		refuse(request, STATUS_FORBIDDEN_ORIGIN,
			"a page of another origin may not change anything here; see "
			"--allowed-hosts");
	else if (slice_is_nocase(site, "cross-site"))
		refuse(request, STATUS_FORBIDDEN_ORIGIN,
			"a web page of another site must not send requests that change something");
}

static void check_protocol(struct request *request, int http_major, int http_minor)
{
	size_t hosts = request_header_count(request, "Host");
	struct slice expect = request_header(request, "Expect");

	bool is_old = http_major == 1 && http_minor == 0;

	if (!request->exchange && (http_major != 1 || http_minor > 1))
		refuse(request, STATUS_BAD_REQUEST,
			"a request line may name only HTTP/1.0 or HTTP/1.1");
	else if (hosts > 1 || (hosts == 0 && !is_old))
		refuse(request, STATUS_BAD_REQUEST,
			request->exchange ? "exactly one :authority is required"
					  : "exactly one Host header is required");
	else if (expect.data && !slice_is_nocase(expect, "100-continue"))
		refuse(request, STATUS_EXPECTATION_FAILED,
			"the only supported expectation is 100-continue");
}

static void refuse_method(struct request *request, struct slice allow)
{
	struct buffer headers = buffer_make(&request->arena, allow.len + 16);

	refuse(request, STATUS_METHOD_NOT_ALLOWED, "this path does not support this method");
	buffer_text(&headers, "Allow: ");
	buffer_add(&headers, allow);
	buffer_text(&headers, "\r\n");
	request->answer.headers = buffer_slice(&headers);
}

/* No route serves OPTIONS, so the router refuses every preflight. A preflight for a path that
 * exists is answered here. */
static void refuse_route(const struct admission *admission, struct request *request,
	enum status status, struct slice allow)
{
	if (status != STATUS_METHOD_NOT_ALLOWED)
		refuse(request, status, "no route has this path; /openapi.json lists all routes");
	else if (is_preflight(admission, request))
		request->answer = cors_preflight(admission->cors_origins, request, allow);
	else
		refuse_method(request, allow);
}

static void find_route(const struct admission *admission, struct request *request)
{
	const char *why;
	struct route_match match = {0};
	enum status status = path_parse(&request->arena, request->target, &request->path, &why);

	if (status != STATUS_OK) {
		refuse(request, status, why);
		return;
	}
	status = router_find(
		admission->router, &request->arena, request->method, &request->path, &match);
	if (status == STATUS_OK) {
		request->route = match.route;
		memcpy(request->params, match.params, sizeof(request->params));
	} else {
		refuse_route(admission, request, status, match.allow);
	}
}

static void read_query(struct request *request)
{
	const char *why;
	enum status status;

	if (request->path.query.len == 0 || request->route->parameters == names_any)
		return;
	status = query_parse(&request->arena, request->path.query, &request->query, &why);
	if (status != STATUS_OK)
		refuse(request, status, why);
}

/* Refuses the caller. A 401 gets a WWW-Authenticate header (RFC 6750), which names an error only if
 * the request had a token. */
static void refuse_caller(
	struct request *request, enum status status, const char *why, bool shows_token)
{
	refuse(request, status, why);
	request->is_guess = shows_token;
	if (status == STATUS_TOO_MANY_BAD_TOKENS)
		request->answer.headers = slice_of("Retry-After: 1\r\n");
	if (status == STATUS_UNAUTHENTICATED)
		request->answer.headers = slice_of(
			shows_token ? "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n"
				    : "WWW-Authenticate: Bearer\r\n");
}

static void check_caller(const struct admission *admission, struct request *request)
{
	const struct route *route = request->route;
	struct access_question question = {
		.access = route->access,
		.role = router_role(route),
		.user = request->params[0],
		.authorization = request_header(request, "Authorization"),
		.address = request->address,
	};
	enum status status;
	const char *why;

	if (request_header_count(request, "Authorization") > 1) {
		refuse(request, STATUS_BAD_REQUEST, "at most one Authorization header is allowed");
		return;
	}
	if (route->access == ACCESS_OWNER_STREAM)
		question.query_token = query_value(&request->query, "access_token");
	status = guard_check(admission->guard, &request->arena, &question, &request->caller, &why);
	if (status != STATUS_OK)
		refuse_caller(request, status, why, access_shows_token(&question));
}

static void check_parameters(struct request *request)
{
	struct unknown_names unknown = {
		.arena = &request->arena,
		.status = STATUS_UNKNOWN_PARAMETER,
		.known = request->route->parameters,
	};

	for (size_t i = 0; i < request->query.count; i++)
		names_check(&unknown, request->query.pairs[i].name);
	if (unknown.count > 0)
		request->answer = names_refuse(&unknown);
}

static void take_request_id(struct request *request)
{
	struct slice id = request_header(request, "X-Request-Id");

	if (id.len > 0 && id.len <= REQUEST_ID_MAX && text_is_utf8(id) && !text_has_control(id))
		request->id = id;
}

static void take_traceparent(struct request *request)
{
	struct slice traceparent = request_header(request, "traceparent");

	if (traceparent.len > 0 && !trace_is_valid(traceparent)) {
		char *fresh = arena_alloc(&request->arena, TRACEPARENT_LEN + 1);

		trace_new(fresh);
		traceparent = slice_of(fresh);
	}
	request->traceparent = traceparent;
}

void admission_decide(
	const struct admission *admission, struct request *request, int http_major, int http_minor)
{
	take_request_id(request);
	take_traceparent(request);
	check_protocol(request, http_major, http_minor);
	if (request->answer.http_status == 0 && admission->guard_browser)
		check_browser(admission, request);
	if (request->answer.http_status == 0)
		find_route(admission, request);
	if (request->answer.http_status == 0)
		read_query(request);
	if (request->answer.http_status == 0 && admission->guard)
		check_caller(admission, request);
	if (request->answer.http_status == 0)
		check_parameters(request);
}

bool admission_wants_continue(const struct request *request)
{
	return request_header(request, "Expect").data != NULL;
}

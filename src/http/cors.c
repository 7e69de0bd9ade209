/*
 * If the operator lists origins, every answer has Vary: Origin, even if the request has no Origin.
 * Without Vary, a cache could serve one page an answer that was rendered for another page. With "*"
 * no Vary is needed, because every page gets the same headers. But with "*", browsers do not let
 * pages read answers to requests with cookies or client certificates.
 */
#include "http/cors.h"

#define EXPOSED "RateLimit, Retry-After, Link, Idempotent-Replayed, X-Request-Id"

/* The request headers that pages may send: those that Quipu reads, and those that polyfills of
 * EventSource send. */
#define ALLOWED                                                                                    \
	"Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-User-Id, X-Request-Id, "   \
	"traceparent, tracestate, Cache-Control, X-Requested-With"

#define PREFLIGHT_KEPT_S "600"

static bool is_name(struct slice text, const char *more)
{
	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];
		bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');

		if (!is_plain && !strchr(more, c))
			return false;
	}
	return text.len > 0;
}

bool cors_origin_is_valid(struct slice origin)
{
	struct slice rest = origin;
	struct slice scheme = slice_cut(&rest, ':');

	if (!rest.data || !slice_starts_with(rest, "//"))
		return false;
	rest = slice_make(rest.data + 2, rest.len - 2);
	return is_name(scheme, "+-.") && is_name(rest, "-._:[]");
}

static bool allows_any(struct slice origins)
{
	return slice_is(origins, "*");
}

static bool is_listed(struct slice origins, struct slice origin)
{
	struct slice rest = origins;

	while (rest.data && origin.len > 0) {
		struct slice listed = slice_trim(slice_cut(&rest, ','));

		if (listed.len > 0 && slice_equal(listed, origin))
			return true;
	}
	return false;
}

bool cors_is_preflight(const struct request *request)
{
	return slice_is(request->method, "OPTIONS") && request_header(request, "Origin").data &&
	       request_header(request, "Access-Control-Request-Method").data;
}

bool cors_preflight_is_safe(const struct request *request)
{
	struct slice method = request_header(request, "Access-Control-Request-Method");

	return slice_is(method, "GET") || slice_is(method, "HEAD");
}

struct answer cors_preflight(struct slice origins, struct request *request, struct slice allow)
{
	struct answer answer = answer_empty();
	struct buffer headers = buffer_make(&request->arena, allow.len + 256);

	if (!allows_any(origins) && !is_listed(origins, request_header(request, "Origin")))
		return answer_problem(&request->arena, STATUS_FORBIDDEN_ORIGIN,
			"pages of this origin may not use this server; see --cors-origins");
	buffer_text(&headers, "Access-Control-Allow-Methods: ");
	buffer_add(&headers, allow);
	buffer_text(&headers, "\r\nAccess-Control-Allow-Headers: " ALLOWED
			      "\r\nAccess-Control-Max-Age: " PREFLIGHT_KEPT_S "\r\n");
	answer.headers = buffer_slice(&headers);
	return answer;
}

static void allow_origin(struct buffer *headers, struct slice origins, struct slice origin)
{
	if (allows_any(origins)) {
		buffer_text(headers, "Access-Control-Allow-Origin: *\r\n");
	} else {
		buffer_text(headers, "Access-Control-Allow-Origin: ");
		buffer_add(headers, origin);
		buffer_text(headers, "\r\nAccess-Control-Allow-Credentials: true\r\n");
	}
	buffer_text(headers, "Access-Control-Expose-Headers: " EXPOSED "\r\n");
}

bool cors_depends_on_origin(struct slice origins)
{
	return origins.len > 0 && !allows_any(origins);
}

void cors_sign(struct slice origins, struct request *request)
{
	struct slice origin = request_header(request, "Origin");
	struct buffer headers;

	if (origins.len == 0)
		return;
	headers = buffer_make(&request->arena, request->answer.headers.len + origin.len + 320);
	buffer_add(&headers, request->answer.headers);
	if (allows_any(origins) || is_listed(origins, origin))
		allow_origin(&headers, origins, origin);
	request->answer.headers = buffer_slice(&headers);
}

/*
 * Twirp v7 (https://twitchtv.github.io/twirp/docs/spec_v7.html): services of a .proto file as
 * routes POST /twirp/<package>.<Service>/<Method>, in JSON or protobuf as the request's
 * Content-Type says. The .proto file is the only description: its methods become the routes, its
 * messages what handlers get and give (see proto_message.h). Refusals below /twirp/, whoever makes
 * them, leave as Twirp's errors: {"code":"not_found","msg":"…","meta":{"reason":"POT_NOT_FOUND"}}.
 *
 *   what is refused                             code                 HTTP
 *   no such method, not a POST, another type    bad_route            404
 *   a body or request that cannot be read       malformed            400
 *   fields that are wrong                       invalid_argument     400   meta.argument: the first
 *   any other status of base/status.h           by its HTTP status:
 *     401, 403, 404                             unauthenticated, permission_denied, not_found
 *     408, 412, 429                             deadline_exceeded, failed_precondition,
 *                                               resource_exhausted
 *     409, and a retry may help                 aborted
 *     409 otherwise                             already_exists
 *     500, 503                                  internal, unavailable
 */
#ifndef QUIPU_HTTP_TWIRP_H
#define QUIPU_HTTP_TWIRP_H

#include "http/proto_message.h"
#include "http/router.h"

#define TWIRP_BODY_MAX (1024 * 1024)

/* A request whose message has been read. */
struct twirp_call {
	struct request *request;
	enum proto_encoding encoding;    /* of the message, and for the answer */
	const ProtobufCMessage *message; /* gone when the handler returns */
};

struct twirp_method {
	const char *name;
	void (*handle)(void *context, const struct twirp_call *call);
};

/*
 * Adds a route of `role` for every method of `service`, and their style of errors. `methods` has
 * them all, in the order of the .proto file. At start; what is allocated from `arena` lives as long
 * as the router, and so must `methods`.
 */
void twirp_add_service(struct router *router, const char *role, struct arena *arena,
	const ProtobufCServiceDescriptor *service, const struct twirp_method *methods,
	void *context);

/* 200 with a message. Any thread. */
struct answer twirp_answer(
	struct arena *arena, enum proto_encoding encoding, const ProtobufCMessage *message);

/*
 * A refusal that is already in its final form, so that it can be remembered under an
 * Idempotency-Key; `detail` is printf-like. Any thread.
 */
struct answer twirp_problem(struct arena *arena, enum status status, const char *detail, ...)
	QP_PRINTF(3, 4);

#endif

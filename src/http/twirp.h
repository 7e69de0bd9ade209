/*
 * Serves the services of a .proto file over Twirp v7
 * (https://twitchtv.github.io/twirp/docs/spec_v7.html). The API is described only in the .proto
 * file: each method becomes a route POST /twirp/<package>.<Service>/<Method>, and its handler
 * receives and returns messages that the file defines (see proto_message.h). The request's
 * Content-Type decides whether messages are sent as JSON or protobuf. All refusals below /twirp/,
 * even those of the parser or a full lane, are sent as Twirp errors:
 * {"code":"not_found","msg":"…","meta":{"reason":"POT_NOT_FOUND"}}.
 *
 *   refusal                                      code                 HTTP
 *   not POST, unknown method or Content-Type     bad_route            404
 *   a body or request that cannot be parsed      malformed            400
 *   invalid fields (meta.argument is the first)  invalid_argument     400
 *   any other status of base/status.h            by its HTTP status:
 *     401, 403, 404                              unauthenticated, permission_denied, not_found
 *     408, 412, 429                              deadline_exceeded, failed_precondition,
 *                                                resource_exhausted
 *     409, if a retry may help                   aborted
 *     409 otherwise                              already_exists
 *     503                                        unavailable
 *     any other below 500                        malformed            400
 *     any other from 500                         internal             500
 */
#ifndef QUIPU_HTTP_TWIRP_H
#define QUIPU_HTTP_TWIRP_H

#include "http/router.h"
#include "protobuf/proto_message.h"

#define TWIRP_BODY_MAX (1024 * 1024)

/* A request with its decoded message. */
struct twirp_call {
	struct request *request;
	enum proto_encoding encoding;    /* the encoding of the message and of the answer */
	const ProtobufCMessage *message; /* valid until the handler returns */
};

struct twirp_method {
	const char *name;
	void (*handle)(void *context, const struct twirp_call *call);
};

/*
 * Adds a route of `role` for every method of `service`, and Twirp's style of errors. `methods` has
 * an entry for every method, in the order of the .proto file. Call it only at start. `arena` and
 * `methods` must outlive the router.
 */
void twirp_add_service(struct router *router, const char *role, struct arena *arena,
	const ProtobufCServiceDescriptor *service, const struct twirp_method *methods,
	void *context);

/* Returns an answer with status 200 and `message`. Thread-safe. */
struct answer twirp_answer(
	struct arena *arena, enum proto_encoding encoding, const ProtobufCMessage *message);

/*
 * Returns a refusal that is already rendered as a Twirp error, so that it can be stored under an
 * Idempotency-Key. `detail` is a printf format. Thread-safe.
 */
struct answer twirp_problem(struct arena *arena, enum status status, const char *detail, ...)
	QP_PRINTF(3, 4);

#endif

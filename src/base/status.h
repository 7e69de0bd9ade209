/*
 * Lists every status with which an operation can end, for the whole program. Each row of the table
 * has the stable code, the HTTP status, whether retrying the same request can help, and the title
 * that people read. Adapters translate the errors of their libraries into these statuses and return
 * nothing else.
 *
 * The rows after OUTCOME_UNKNOWN never reach a client: they are signals between modules (see
 * ports/store.h and ports/cache.h).
 */
#ifndef QUIPU_BASE_STATUS_H
#define QUIPU_BASE_STATUS_H

#include <stdbool.h>

#define QP_MUST_CHECK __attribute__((warn_unused_result))
#define QP_PRINTF(text, first) __attribute__((format(printf, text, first)))

/*        code                      HTTP  retry  title */
#define STATUS_TABLE(ROW)                                                                          \
	ROW(OK, 200, false, "OK")                                                                  \
	ROW(BAD_REQUEST, 400, false, "Bad Request")                                                \
	ROW(UNKNOWN_FIELD, 400, false, "Bad Request")                                              \
	ROW(UNKNOWN_PARAMETER, 400, false, "Bad Request")                                          \
	ROW(IDEMPOTENCY_KEY_REQUIRED, 400, false, "Bad Request")                                   \
	ROW(UNAUTHENTICATED, 401, false, "Unauthorized")                                           \
	ROW(FORBIDDEN, 403, false, "Forbidden")                                                    \
	ROW(FORBIDDEN_HOST, 403, false, "Forbidden")                                               \
	ROW(FORBIDDEN_ORIGIN, 403, false, "Forbidden")                                             \
	ROW(ROUTE_NOT_FOUND, 404, false, "Not Found")                                              \
	ROW(ROLE_NOT_HERE, 404, false, "Not Found")                                                \
	ROW(COUNT_NOT_FOUND, 404, false, "Not Found")                                              \
	ROW(CONFIG_NOT_FOUND, 404, false, "Not Found")                                             \
	ROW(ENTITLEMENT_NOT_FOUND, 404, false, "Not Found")                                        \
	ROW(MESSAGE_NOT_FOUND, 404, false, "Not Found")                                            \
	ROW(DEAD_LETTER_NOT_FOUND, 404, false, "Not Found")                                        \
	ROW(POT_NOT_FOUND, 404, false, "Not Found")                                                \
	ROW(METHOD_NOT_ALLOWED, 405, false, "Method Not Allowed")                                  \
	ROW(REQUEST_TIMEOUT, 408, true, "Request Timeout")                                         \
	ROW(COUNT_EXISTS, 409, false, "Conflict")                                                  \
	ROW(COUNT_OVERFLOW, 409, false, "Conflict")                                                \
	ROW(COUNT_OUT_OF_BOUNDS, 409, false, "Conflict")                                           \
	ROW(COUNT_VALUE_CONFLICT, 409, false, "Conflict")                                          \
	ROW(ENTITLEMENT_STATE_CONFLICT, 409, false, "Conflict")                                    \
	ROW(ENTITLEMENT_TOO_MANY_SOURCES, 409, false, "Conflict")                                  \
	ROW(DEAD_LETTER_UNREADABLE, 409, false, "Conflict")                                        \
	ROW(IDEMPOTENCY_KEY_CONFLICT, 409, false, "Conflict")                                      \
	ROW(POT_EXISTS, 409, false, "Conflict")                                                    \
	ROW(POT_LOCKED, 409, true, "Conflict")                                                     \
	ROW(POT_FULL, 412, false, "Precondition Failed")                                           \
	ROW(BODY_TOO_LARGE, 413, false, "Content Too Large")                                       \
	ROW(URI_TOO_LONG, 414, false, "URI Too Long")                                              \
	ROW(UNSUPPORTED_MEDIA_TYPE, 415, false, "Unsupported Media Type")                          \
	ROW(EXPECTATION_FAILED, 417, false, "Expectation Failed")                                  \
	ROW(RATE_LIMIT_EXCEEDED, 429, true, "Too Many Requests")                                   \
	ROW(TOO_MANY_BAD_TOKENS, 429, true, "Too Many Requests")                                   \
	ROW(HEADERS_TOO_LARGE, 431, false, "Request Header Fields Too Large")                      \
	ROW(INTERNAL, 500, false, "Internal Server Error")                                         \
	ROW(OVERLOADED, 503, true, "Service Unavailable")                                          \
	ROW(STORE_UNAVAILABLE, 503, true, "Service Unavailable")                                   \
	ROW(BUS_UNAVAILABLE, 503, true, "Service Unavailable")                                     \
	ROW(OUTCOME_UNKNOWN, 503, true, "Service Unavailable")                                     \
	/* The engine rolled the transaction back (deadlock, lost race): run it again. */          \
	ROW(RERUN, 500, true, "Rerun")                                                             \
	/* Another session holds a row lock for longer than a batch may wait. */                   \
	ROW(LOCK_BUSY, 500, true, "Lock Busy")                                                     \
	/* The engine refuses something in this batch; nothing was applied. */                     \
	ROW(POISON, 500, false, "Poison")                                                          \
	/* The cache is unreachable: continue without it. */                                       \
	ROW(CACHE_AWAY, 500, true, "Cache Away")

enum status {
#define STATUS_ENUM(code, http, retry, title) STATUS_##code,
	STATUS_TABLE(STATUS_ENUM)
#undef STATUS_ENUM
		STATUS_COUNT
};

/* Returns the stable, upper case code, e.g. "COUNT_NOT_FOUND". The string is static. */
const char *status_code(enum status status);

int status_http(enum status status);

/* Returns the title for RFC 9457, e.g. "Not Found". The string is static. */
const char *status_title(enum status status);

/* Returns whether the same request may succeed later. */
bool status_retry_helps(enum status status);

/* Returns the reason phrase of an HTTP status that this program sends; "Unknown" for others. The
 * string is static. */
const char *status_reason(int http_status);

#endif

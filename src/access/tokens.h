/*
 * Verifies users' tokens: JWT (RFC 7519), signed as JWS compact (RFC 7515). The configuration fixes
 * the algorithm, and a token that names another algorithm is refused, whatever its signature;
 * "none" is not supported. exp is required.
 *
 * A checker never changes after it was created, so any thread may use it.
 */
#ifndef QUIPU_ACCESS_TOKENS_H
#define QUIPU_ACCESS_TOKENS_H

#include "base/arena.h"
#include "base/slice.h"
#include "base/status.h"

#define TOKENS_WHY_SIZE 512
#define TOKEN_SIZE_MAX 8192
#define TOKEN_SUBJECT_MAX 128

struct token_config {
	const char *key_file;  /* path of a public key in PEM, or of the secret for HS256; line
				* breaks at the end of the secret are ignored */
	const char *algorithm; /* "HS256", "RS256" or "ES256" */
	const char *issuer;    /* "" accepts any issuer */
	const char *audience;  /* "" accepts any audience */
	int64_t leeway_us;     /* how much the clocks of issuer and server may differ */
};

struct token_checker;

bool token_algorithm_is_known(const char *name);

/*
 * Reads the key file; blocks. `issuer` and `audience` must outlive the checker. On failure returns
 * NULL and writes the reason, but never the key, to `why` (TOKENS_WHY_SIZE bytes).
 */
QP_MUST_CHECK struct token_checker *token_checker_new(const struct token_config *config, char *why);
void token_checker_free(struct token_checker *checker);

/* Returns whether both checkers use the same key. */
bool token_checker_is_same(const struct token_checker *a, const struct token_checker *b);

enum token_fault {
	TOKEN_GOOD,
	TOKEN_MALFORMED,
	TOKEN_OTHER_ALGORITHM,
	TOKEN_BAD_SIGNATURE,
	TOKEN_NO_EXPIRY,
	TOKEN_EXPIRED,
	TOKEN_NOT_YET,
	TOKEN_OTHER_ISSUER,
	TOKEN_OTHER_AUDIENCE,
	TOKEN_NO_SUBJECT,
	TOKEN_NOT_CHECKED, /* the guard refused the token without calling token_check() */
	TOKEN_FAULTS
};

/* Returns a sentence that explains the fault to the client. The string is static. */
const char *token_fault_text(enum token_fault fault);

struct token_claims {
	/* A user id: 1 to TOKEN_SUBJECT_MAX bytes of UTF-8 without control characters. */
	struct slice subject;
	int64_t ends_us; /* the token is refused from this wall time on: exp plus the leeway */
};

/*
 * Checks a token. If it is good, returns TOKEN_GOOD and sets `*claims`, whose subject is allocated
 * from `arena`; otherwise returns the first fault of the token and leaves `*claims` alone.
 */
QP_MUST_CHECK enum token_fault token_check(const struct token_checker *checker, struct arena *arena,
	struct slice token, int64_t now_us, struct token_claims *claims);

#endif

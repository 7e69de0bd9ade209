/*
 * Users' tokens. Without a line feed the input is a token as it comes; with one it is a header and
 * its claims, which are signed right, so that what is behind the signature is reached.
 */
#include "access/tokens.h"
#include "base/text.h"
#include "target.h"

#include "../unit/token_maker.h"

#define NOW_US (1000000000LL * 1000000)
#define FLIPS 8

static struct token_checker *open_checker(void)
{
	struct token_maker maker;
	struct token_config config = {
		.key_file = maker.file,
		.algorithm = "HS256",
		.issuer = "",
		.audience = "",
		.leeway_us = 1000000,
	};
	struct token_checker *checker;
	char why[TOKENS_WHY_SIZE];

	token_maker_init(&maker, "HS256");
	checker = token_checker_new(&config, why);
	MUST(checker);
	token_maker_release(&maker);
	return checker;
}

/* The signature covers every bit, and base64url has one way to write it. */
static void check_flips(
	const struct token_checker *checker, struct arena *arena, struct slice token)
{
	char *bytes = arena_alloc(arena, token.len);
	struct token_claims claims;

	memcpy(bytes, token.data, token.len);
	for (size_t i = 0; i < FLIPS; i++) {
		size_t at = token.len * i / FLIPS;

		bytes[at] ^= (char)(1 << i);
		MUST(token_check(checker, arena, slice_make(bytes, token.len), NOW_US, &claims) !=
			TOKEN_GOOD);
		bytes[at] ^= (char)(1 << i);
	}
}

static void try_token(const struct token_checker *checker, struct arena *arena, struct slice token)
{
	struct token_claims claims = {.ends_us = -1};
	enum token_fault fault = token_check(checker, arena, token, NOW_US, &claims);

	MUST(fault < TOKEN_FAULTS && token_fault_text(fault));
	if (fault != TOKEN_GOOD) {
		MUST(claims.ends_us == -1 && !claims.subject.data);
		return;
	}
	MUST(claims.ends_us > NOW_US);
	MUST(claims.subject.len >= 1 && claims.subject.len <= TOKEN_SUBJECT_MAX);
	MUST(text_is_utf8(claims.subject) && !text_has_control(claims.subject));
	check_flips(checker, arena, token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct token_maker maker = {.algorithm = "HS256"};
	static struct token_checker *checker;
	struct slice claims = slice_make(data, size), header = slice_cut(&claims, '\n');
	struct arena arena;

	if (!checker)
		checker = open_checker();
	arena_init(&arena, 16 * 1024);
	if (claims.data)
		try_token(checker, &arena, token_maker_make(&maker, &arena, header, claims));
	else
		try_token(checker, &arena, slice_make(data, size));
	arena_release(&arena);
	return 0;
}

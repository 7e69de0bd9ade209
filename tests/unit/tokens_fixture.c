#include "tokens_fixture.h"

#include <openssl/err.h>

#include "base/buffer.h"

#define LEEWAY_US (LEEWAY_S * 1000000LL)

struct token_maker token_makers[MAKERS];
struct arena token_arena;

void make_token_keys(void)
{
	token_maker_init(&token_makers[HS], "HS256");
	token_maker_init(&token_makers[RS], "RS256");
	token_maker_init(&token_makers[ES], "ES256");
	arena_init(&token_arena, 16 * 1024);
}

void drop_token_keys(void)
{
	for (size_t i = 0; i < MAKERS; i++)
		token_maker_release(&token_makers[i]);
	arena_release(&token_arena);
}

struct token_config token_config_of(const struct token_maker *maker)
{
	return (struct token_config){
		.key_file = maker->file,
		.algorithm = maker->algorithm,
		.issuer = "",
		.audience = "",
		.leeway_us = LEEWAY_US,
	};
}

struct token_checker *open_token_checker(const struct token_config *config)
{
	char why[TOKENS_WHY_SIZE] = "";
	struct token_checker *checker = token_checker_new(config, why);

	if (!checker)
		fail_msg("%s", why);
	return checker;
}

struct token_checker *token_checker_of(const struct token_maker *maker)
{
	struct token_config config = token_config_of(maker);

	return open_token_checker(&config);
}

struct slice token_header_of(const struct token_maker *maker)
{
	struct buffer header = buffer_make(&token_arena, 64);

	buffer_format(&header, "{\"alg\":\"%s\",\"typ\":\"JWT\"}", maker->algorithm);
	return buffer_slice(&header);
}

struct slice make_token(const struct token_maker *maker, const char *claims)
{
	return token_maker_make(maker, &token_arena, token_header_of(maker), slice_of(claims));
}

void expect_token_at(const struct token_checker *checker, struct slice token, int64_t now_s,
	enum token_fault expected, const char *what)
{
	struct token_claims claims = {.subject = slice_of("untouched"), .ends_us = -7};
	enum token_fault fault =
		token_check(checker, &token_arena, token, now_s * 1000000, &claims);

	if (fault != expected)
		fail_msg("%s: \"%s\", not \"%s\"", what, token_fault_text(fault),
			token_fault_text(expected));
	assert_int_equal(ERR_peek_error(), 0);
	if (fault == TOKEN_GOOD)
		return;
	assert_slice(claims.subject, "untouched");
	assert_int_equal(claims.ends_us, -7);
}

void expect_token(const struct token_checker *checker, struct slice token,
	enum token_fault expected, const char *what)
{
	expect_token_at(checker, token, NOW_S, expected, what);
}

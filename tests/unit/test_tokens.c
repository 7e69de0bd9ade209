/* Users' tokens: which are valid, and everything that an attacker may try instead. */
#include <stdio.h>
#include <unistd.h>

#include "base/buffer.h"
#include "tokens_fixture.h"

/* ---- what is good ------------------------------------------------------------------------ */

static void a_token_of_its_issuer_is_good_and_says_who_and_until_when(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = token_checker_of(&token_makers[i]);
		struct token_claims claims;

		assert_int_equal(
			token_check(checker, &token_arena,
				make_token(&token_makers[i], GOOD_CLAIMS), NOW_US, &claims),
			TOKEN_GOOD);
		assert_slice(claims.subject, "alice");
		assert_int_equal(claims.ends_us, NOW_US + (100 + LEEWAY_S) * 1000000LL);
		token_checker_free(checker);
	}
}

/* RFC 7515, appendix A.1 to A.3: all three sign {"iss":"joe","exp":1300819380,…}, without a sub. */
#define RFC_CLAIMS                                                                                 \
	"eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290"     \
	"Ijp0cnVlfQ"
#define RFC_EXP_S 1300819380

static const struct {
	const char *algorithm;
	struct slice key;
	const char *token;
} rfc_examples[] = {
	{"HS256",
		SLICE("\x03\x23\x35\x4b\x2b\x0f\xa5\xbc\x83\x7e\x06\x65\x77\x7b\xa6\x8f"
		      "\x5a\xb3\x28\xe6\xf0\x54\xc9\x28\xa9\x0f\x84\xb2\xd2\x50\x2e\xbf"
		      "\xd3\xfb\x5a\x92\xd2\x06\x47\xef\x96\x8a\xb4\xc3\x77\x62\x3d\x22"
		      "\x3d\x2e\x21\x72\x05\x2e\x4f\x08\xc0\xcd\x9a\xf5\x67\xd0\x80\xa3"),
		"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." RFC_CLAIMS
		".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"},
	{"RS256",
		SLICE("-----BEGIN PUBLIC KEY-----\n"
		      "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJj\n"
		      "NiuSfb4p4fAkd/wWJcyQoTbji9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEz\n"
		      "P1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b32690r2jZ47soMZo\n"
		      "9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTB\n"
		      "EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxX\n"
		      "FvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp\n"
		      "oQIDAQAB\n"
		      "-----END PUBLIC KEY-----\n"),
		"eyJhbGciOiJSUzI1NiJ9." RFC_CLAIMS
		".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF"
		"5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h"
		"6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZES"
		"c6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN"
		"_IoypGlUPQGe77Rw"},
	{"ES256",
		SLICE("-----BEGIN PUBLIC KEY-----\n"
		      "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV7\n"
		      "6e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==\n"
		      "-----END PUBLIC KEY-----\n"),
		"eyJhbGciOiJFUzI1NiJ9." RFC_CLAIMS
		".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-K"
		"g6NU1Q"},
};

/* The signatures are right if the only fault is in what is checked after them. */
static void the_examples_of_the_rfc_are_signed_right(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rfc_examples); i++) {
		struct token_config config = token_config_of(&token_makers[HS]);
		struct slice token = slice_of(rfc_examples[i].token);
		struct slice other = arena_copy(&token_arena, token);
		struct token_checker *checker;
		char path[64];

		write_key_file(path, rfc_examples[i].key);
		config.key_file = path;
		config.algorithm = rfc_examples[i].algorithm;
		config.issuer = "joe";
		checker = open_token_checker(&config);
		expect_token(checker, token, TOKEN_NO_SUBJECT, config.algorithm);
		expect_token_at(
			checker, token, RFC_EXP_S + LEEWAY_S, TOKEN_EXPIRED, config.algorithm);
		((char *)(uintptr_t)other.data)[token.len - 10] ^= 1;
		expect_token(checker, other, TOKEN_BAD_SIGNATURE, config.algorithm);
		token_checker_free(checker);
		unlink(path);
	}
}

/* ---- claims ------------------------------------------------------------------------------ */

static const struct {
	const char *claims;
	enum token_fault fault;
} claim_table[] = {
	/* exp: a number of seconds, in the future */
	{"{\"sub\":\"alice\"}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":null}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":true}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":\"1000000100\"}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":[1000000100]}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"EXP\":1000000100}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":1000000100.25}", TOKEN_GOOD},
	{"{\"sub\":\"alice\",\"exp\":1.0000001e9}", TOKEN_GOOD},
	{"{\"sub\":\"alice\",\"exp\":1000000000000}", TOKEN_NO_EXPIRY}, /* milliseconds */
	{"{\"sub\":\"alice\",\"exp\":9223372036854775807}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":9223372036854775808}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":1e300}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":1e400}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":-1}", TOKEN_EXPIRED},
	{"{\"sub\":\"alice\",\"exp\":-1e300}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":0}", TOKEN_EXPIRED},
	{"{\"sub\":\"alice\",\"exp\":-0.0}", TOKEN_EXPIRED},
	{"{\"sub\":\"alice\",\"exp\":NaN}", TOKEN_MALFORMED},
	{"{\"sub\":\"alice\",\"exp\":999999970}", TOKEN_EXPIRED},
	{"{\"sub\":\"alice\",\"exp\":999999971}", TOKEN_GOOD}, /* within the leeway */
	/* nbf: optional; if present, a number in the past */
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"nbf\":1000000030}", TOKEN_GOOD},
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"nbf\":1000000031}", TOKEN_NOT_YET},
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"nbf\":\"1\"}", TOKEN_NOT_YET},
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"nbf\":null}", TOKEN_NOT_YET},
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"nbf\":1e300}", TOKEN_NOT_YET},
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"nbf\":-1e300}", TOKEN_NOT_YET},
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"nbf\":-5}", TOKEN_GOOD},
	/* sub: the id of a user */
	{"{\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":\"\",\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":7,\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":null,\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":[\"alice\"],\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":{\"sub\":\"alice\"},\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":\"al\\nice\",\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":\"al\\u0085ice\",\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":\"al\\u007fice\",\"exp\":1000000100}", TOKEN_NO_SUBJECT},
	{"{\"sub\":\"alice\\u0000x\",\"exp\":1000000100}", TOKEN_MALFORMED},
	{"{\"sub\":\"al\\ud800ice\",\"exp\":1000000100}", TOKEN_MALFORMED},
	{"{\"sub\":\"\xff\",\"exp\":1000000100}", TOKEN_MALFORMED},
	{"{\"sub\":\"\xc3\xa4lice\",\"exp\":1000000100}", TOKEN_GOOD},
	/* two programs must not read two different tokens */
	{"{\"sub\":\"alice\",\"sub\":\"bob\",\"exp\":1000000100}", TOKEN_MALFORMED},
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"exp\":1}", TOKEN_MALFORMED},
	{"{\"sub\":\"alice\",\"s\\u0075b\":\"bob\",\"exp\":1000000100}", TOKEN_MALFORMED},
	{"{\"sub\":\"alice\",\"exp\":1000000100}{}", TOKEN_MALFORMED},
	/* not claims at all */
	{"", TOKEN_MALFORMED},
	{"null", TOKEN_MALFORMED},
	{"[]", TOKEN_MALFORMED},
	{"\"eyJ9.eyJ9.\"", TOKEN_MALFORMED},
	{"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.AAAA", TOKEN_MALFORMED}, /* nested */
	{"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
		TOKEN_MALFORMED},
	/* unknown claims do no harm */
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"admin\":true,\"iat\":\"never\"}", TOKEN_GOOD},
};

static void every_claim_is_checked_whatever_it_is_signed_with(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = token_checker_of(&token_makers[i]);

		for (size_t j = 0; j < COUNT_OF(claim_table); j++)
			expect_token(checker, make_token(&token_makers[i], claim_table[j].claims),
				claim_table[j].fault, claim_table[j].claims);
		token_checker_free(checker);
	}
}

static struct slice make_for(size_t subject_len)
{
	struct buffer claims = buffer_make(&token_arena, subject_len + 64);

	buffer_text(&claims, "{\"exp\":1000000100,\"sub\":\"");
	for (size_t i = 0; i < subject_len; i++)
		buffer_char(&claims, 'x');
	buffer_text(&claims, "\"}");
	return token_maker_make(&token_makers[HS], &token_arena, token_header_of(&token_makers[HS]),
		buffer_slice(&claims));
}

static void a_subject_has_128_bytes_at_most_and_a_token_8192(void **state)
{
	struct token_checker *checker = token_checker_of(&token_makers[HS]);
	struct slice token = make_for(6000);

	(void)state;
	expect_token(checker, make_for(128), TOKEN_GOOD, "128 bytes");
	expect_token(checker, make_for(129), TOKEN_NO_SUBJECT, "129 bytes");
	assert_true(token.len < TOKEN_SIZE_MAX);
	expect_token(checker, token, TOKEN_NO_SUBJECT, "a long token");
	token = make_for(6200);
	assert_true(token.len > TOKEN_SIZE_MAX);
	expect_token(checker, token, TOKEN_MALFORMED, "a longer token");
	token_checker_free(checker);
}

static const struct {
	const char *issuer, *audience;
	const char *claims; /* claims besides sub and exp */
	enum token_fault fault;
} party_table[] = {
	{"", "", "\"iss\":\"anyone\",\"aud\":\"anything\"", TOKEN_GOOD},
	{"me", "", "\"iss\":\"me\"", TOKEN_GOOD},
	{"me", "", "\"iss\":\"you\"", TOKEN_OTHER_ISSUER},
	{"me", "", "\"iss\":\"me2\"", TOKEN_OTHER_ISSUER},
	{"me", "", "\"iss\":\"ME\"", TOKEN_OTHER_ISSUER},
	{"me", "", "\"iss\":[\"me\"]", TOKEN_OTHER_ISSUER},
	{"me", "", "\"iss\":null", TOKEN_OTHER_ISSUER},
	{"me", "", "\"jti\":\"1\"", TOKEN_OTHER_ISSUER},
	{"", "quipu", "\"aud\":\"quipu\"", TOKEN_GOOD},
	{"", "quipu", "\"aud\":[\"mail\",\"quipu\"]", TOKEN_GOOD},
	{"", "quipu", "\"aud\":[7,null,[\"quipu\"],\"quipu\"]", TOKEN_GOOD},
	{"", "quipu", "\"aud\":\"mail\"", TOKEN_OTHER_AUDIENCE},
	{"", "quipu", "\"aud\":\"quip\"", TOKEN_OTHER_AUDIENCE},
	{"", "quipu", "\"aud\":[\"mail\"]", TOKEN_OTHER_AUDIENCE},
	{"", "quipu", "\"aud\":[]", TOKEN_OTHER_AUDIENCE},
	{"", "quipu", "\"aud\":[[\"quipu\"]]", TOKEN_OTHER_AUDIENCE},
	{"", "quipu", "\"aud\":{\"quipu\":\"quipu\"}", TOKEN_OTHER_AUDIENCE},
	{"", "quipu", "\"jti\":\"1\"", TOKEN_OTHER_AUDIENCE},
	{"me", "quipu", "\"iss\":\"me\",\"aud\":\"quipu\"", TOKEN_GOOD},
	{"me", "quipu", "\"iss\":\"quipu\",\"aud\":\"me\"", TOKEN_OTHER_ISSUER},
};

static void issuer_and_audience_are_those_that_are_configured(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(party_table); i++) {
		struct token_config config = token_config_of(&token_makers[HS]);
		struct token_checker *checker;
		char claims[256];

		config.issuer = party_table[i].issuer;
		config.audience = party_table[i].audience;
		checker = open_token_checker(&config);
		snprintf(claims, sizeof(claims), "{\"sub\":\"alice\",\"exp\":1000000100,%s}",
			party_table[i].claims);
		expect_token(checker, make_token(&token_makers[HS], claims), party_table[i].fault,
			claims);
		token_checker_free(checker);
	}
}

/* ---- headers ----------------------------------------------------------------------------- */

/* %s stands for the name of the algorithm. All tokens have a valid signature. */
static const struct {
	const char *header;
	enum token_fault fault;
} header_table[] = {
	{"{\"alg\":\"%s\"}", TOKEN_GOOD},
	{"{\"typ\":\"at+jwt\",\"kid\":\"../../etc/passwd\",\"alg\":\"%s\"}", TOKEN_GOOD},
	/* keys that come with the token are ignored */
	{"{\"alg\":\"%s\",\"jwk\":{\"kty\":\"oct\",\"k\":\"AA\"},\"jku\":\"http://127.0.0.1:1/\","
	 "\"x5u\":\"http://127.0.0.1:1/\",\"x5c\":[\"AA==\"]}",
		TOKEN_GOOD},
	{"{\"alg\":\"none\"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":\"None\"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":\"\"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":\"%s \"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":\"HS512\"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":\"PS256\"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":\"hs256\"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":\"Rs256\"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":\"es256\"}", TOKEN_OTHER_ALGORITHM},
	{"{\"alg\":null}", TOKEN_MALFORMED},
	{"{\"alg\":[\"%s\"]}", TOKEN_MALFORMED},
	{"{\"alg\":256}", TOKEN_MALFORMED},
	{"{\"Alg\":\"%s\"}", TOKEN_MALFORMED},
	{"{\"typ\":\"JWT\"}", TOKEN_MALFORMED},
	{"{\"alg\":\"none\",\"alg\":\"%s\"}", TOKEN_MALFORMED},
	{"{\"alg\":\"%s\",\"alg\":\"%s\"}", TOKEN_MALFORMED},
	{"{\"alg\":\"%s\\u0000\"}", TOKEN_MALFORMED},
	{"{\"alg\":\"%s\",\"crit\":[\"b64\"],\"b64\":false}", TOKEN_MALFORMED},
	{"{\"alg\":\"%s\",\"crit\":[]}", TOKEN_MALFORMED},
	{"{\"alg\":\"%s\",\"crit\":null}", TOKEN_MALFORMED},
	{"[\"%s\"]", TOKEN_MALFORMED},
	{"\"%s\"", TOKEN_MALFORMED},
	{"{}", TOKEN_MALFORMED},
	{"", TOKEN_MALFORMED},
};

/* Returns the text with every %s replaced, because printf formats must be literals. */
static struct slice fill_in(const char *text, const char *name)
{
	struct buffer out = buffer_make(&token_arena, 256);

	for (; *text; text++) {
		if (text[0] == '%') {
			buffer_text(&out, name);
			text++;
		} else {
			buffer_char(&out, *text);
		}
	}
	return buffer_slice(&out);
}

static void a_header_names_the_one_algorithm_and_asks_for_nothing_else(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = token_checker_of(&token_makers[i]);

		for (size_t j = 0; j < COUNT_OF(header_table); j++) {
			struct slice header =
				fill_in(header_table[j].header, token_makers[i].algorithm);

			expect_token(checker,
				token_maker_make(&token_makers[i], &token_arena, header,
					slice_of(GOOD_CLAIMS)),
				header_table[j].fault, header_table[j].header);
		}
		token_checker_free(checker);
	}
}

/* ---- the three parts --------------------------------------------------------------------- */

static void no_character_of_a_token_can_be_another(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = token_checker_of(&token_makers[i]);
		struct slice token = make_token(&token_makers[i], GOOD_CLAIMS);
		char *bytes = (char *)(uintptr_t)arena_copy(&token_arena, token).data;

		for (size_t at = 0; at < token.len; at++) {
			for (int bit = 0; bit < 8; bit++) {
				struct token_claims claims;

				bytes[at] = (char)(token.data[at] ^ (1 << bit));
				assert_int_not_equal(
					token_check(checker, &token_arena,
						slice_make(bytes, token.len), NOW_US, &claims),
					TOKEN_GOOD);
			}
			bytes[at] = token.data[at];
		}
		expect_token(checker, slice_make(bytes, token.len), TOKEN_GOOD, "as it was");
		token_checker_free(checker);
	}
}

#define HEAD "eyJhbGciOiJIUzI1NiJ9"
#define BODY "eyJzdWIiOiJhIn0"

static const char *const no_tokens[] = {
	"",
	".",
	"..",
	"...",
	"alice",
	HEAD,
	HEAD "." BODY,
	HEAD "." BODY "AAAA",
	"." BODY ".AAAA",
	HEAD "=." BODY ".AAAA",
	HEAD "." BODY ".AAAA.AAAA",
	HEAD "." BODY ".AAAA.AAAA.AAAA", /* the form of a JWE */
	HEAD "." BODY ".AA==",
	HEAD "." BODY ".AA+/",
	HEAD "." BODY ".A",
	HEAD "." BODY ".AB", /* leftover bits that are not 0 */
	HEAD "." BODY ".AAB",
	HEAD "." BODY ".AA AA",
	HEAD "." BODY ".AAAA\n",
	" " HEAD "." BODY ".AAAA",
	"{\"payload\":\"" BODY "\",\"protected\":\"" HEAD "\",\"signature\":\"AAAA\"}",
};

static void what_has_not_three_parts_of_base64url_is_no_token(void **state)
{
	struct token_checker *checker = token_checker_of(&token_makers[HS]);

	(void)state;
	for (size_t i = 0; i < COUNT_OF(no_tokens); i++)
		expect_token(checker, slice_of(no_tokens[i]), TOKEN_MALFORMED, no_tokens[i]);
	expect_token(checker, (struct slice){0}, TOKEN_MALFORMED, "nothing");
	expect_token(checker, slice_of(HEAD "." BODY "."), TOKEN_BAD_SIGNATURE, "no signature");
	token_checker_free(checker);
}

static void a_good_token_with_something_around_it_is_none(void **state)
{
	static const char *const around[] = {"=", "==", ".", " ", "\n", "\t"};
	struct token_checker *checker = token_checker_of(&token_makers[HS]);
	struct slice token = make_token(&token_makers[HS], GOOD_CLAIMS);

	(void)state;
	for (size_t i = 0; i < COUNT_OF(around); i++) {
		struct buffer behind = buffer_make(&token_arena, 256);
		struct buffer before = buffer_make(&token_arena, 256);

		buffer_add(&behind, token);
		buffer_text(&behind, around[i]);
		expect_token(checker, buffer_slice(&behind), TOKEN_MALFORMED, "behind");
		buffer_text(&before, around[i]);
		buffer_add(&before, token);
		expect_token(checker, buffer_slice(&before), TOKEN_MALFORMED, "before");
	}
	token_checker_free(checker);
}

static void every_fault_has_a_sentence(void **state)
{
	(void)state;
	for (int fault = 0; fault < TOKEN_FAULTS; fault++)
		assert_contains(slice_of(token_fault_text((enum token_fault)fault)), "the ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_of_its_issuer_is_good_and_says_who_and_until_when),
		cmocka_unit_test(the_examples_of_the_rfc_are_signed_right),
		cmocka_unit_test(every_claim_is_checked_whatever_it_is_signed_with),
		cmocka_unit_test(a_subject_has_128_bytes_at_most_and_a_token_8192),
		cmocka_unit_test(issuer_and_audience_are_those_that_are_configured),
		cmocka_unit_test(a_header_names_the_one_algorithm_and_asks_for_nothing_else),
		cmocka_unit_test(no_character_of_a_token_can_be_another),
		cmocka_unit_test(what_has_not_three_parts_of_base64url_is_no_token),
		cmocka_unit_test(a_good_token_with_something_around_it_is_none),
		cmocka_unit_test(every_fault_has_a_sentence),
	};
	int failed;

	make_token_keys();
	failed = cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
	failed += run_token_signature_tests();
	failed += run_token_key_tests();
	drop_token_keys();
	return failed;
}

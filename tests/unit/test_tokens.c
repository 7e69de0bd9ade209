/* Users' tokens: what is good, and everything that an attacker may try instead. */
#include "check.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "access/tokens.h"
#include "base/buffer.h"
#include "token_maker.h"

#define NOW_S 1000000000LL
#define NOW_US (NOW_S * 1000000)
#define LEEWAY_S 30
#define GOOD_CLAIMS "{\"sub\":\"alice\",\"exp\":1000000100}"

enum { HS, RS, ES, MAKERS };

static struct token_maker makers[MAKERS];
static struct arena arena;

static int make_keys(void **state)
{
	(void)state;
	token_maker_init(&makers[HS], "HS256");
	token_maker_init(&makers[RS], "RS256");
	token_maker_init(&makers[ES], "ES256");
	arena_init(&arena, 16 * 1024);
	return 0;
}

static int drop_keys(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++)
		token_maker_release(&makers[i]);
	arena_release(&arena);
	return 0;
}

/* ---- helpers ----------------------------------------------------------------------------- */

static struct token_config config_of(const struct token_maker *maker)
{
	return (struct token_config){
		.key_file = maker->file,
		.algorithm = maker->algorithm,
		.issuer = "",
		.audience = "",
		.leeway_us = LEEWAY_S * 1000000LL,
	};
}

static struct token_checker *open_checker(const struct token_config *config)
{
	char why[TOKENS_WHY_SIZE] = "";
	struct token_checker *checker = token_checker_new(config, why);

	if (!checker)
		fail_msg("%s", why);
	return checker;
}

static struct token_checker *checker_of(const struct token_maker *maker)
{
	struct token_config config = config_of(maker);

	return open_checker(&config);
}

static struct slice header_of(const struct token_maker *maker)
{
	struct buffer header = buffer_make(&arena, 64);

	buffer_format(&header, "{\"alg\":\"%s\",\"typ\":\"JWT\"}", maker->algorithm);
	return buffer_slice(&header);
}

static struct slice make(const struct token_maker *maker, const char *claims)
{
	return token_maker_make(maker, &arena, header_of(maker), slice_of(claims));
}

static void expect_at(const struct token_checker *checker, struct slice token, int64_t now_s,
	enum token_fault expected, const char *what)
{
	struct token_claims claims = {.subject = slice_of("untouched"), .ends_us = -7};
	enum token_fault fault = token_check(checker, &arena, token, now_s * 1000000, &claims);

	if (fault != expected)
		fail_msg("%s: \"%s\", not \"%s\"", what, token_fault_text(fault),
			token_fault_text(expected));
	assert_int_equal(ERR_peek_error(), 0);
	if (fault == TOKEN_GOOD)
		return;
	assert_slice(claims.subject, "untouched");
	assert_int_equal(claims.ends_us, -7);
}

static void expect(const struct token_checker *checker, struct slice token,
	enum token_fault expected, const char *what)
{
	expect_at(checker, token, NOW_S, expected, what);
}

/* ---- what is good ------------------------------------------------------------------------ */

static void a_token_of_its_issuer_is_good_and_says_who_and_until_when(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = checker_of(&makers[i]);
		struct token_claims claims;

		assert_int_equal(token_check(checker, &arena, make(&makers[i], GOOD_CLAIMS), NOW_US,
					 &claims),
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

/* That the signature is right shows in that only what is checked after it is missing. */
static void the_examples_of_the_rfc_are_signed_right(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rfc_examples); i++) {
		struct token_config config = config_of(&makers[HS]);
		struct slice token = slice_of(rfc_examples[i].token);
		struct slice other = arena_copy(&arena, token);
		struct token_checker *checker;
		char path[64];

		write_key_file(path, rfc_examples[i].key);
		config.key_file = path;
		config.algorithm = rfc_examples[i].algorithm;
		config.issuer = "joe";
		checker = open_checker(&config);
		expect(checker, token, TOKEN_NO_SUBJECT, config.algorithm);
		expect_at(checker, token, RFC_EXP_S + LEEWAY_S, TOKEN_EXPIRED, config.algorithm);
		((char *)(uintptr_t)other.data)[token.len - 10] ^= 1;
		expect(checker, other, TOKEN_BAD_SIGNATURE, config.algorithm);
		token_checker_free(checker);
		unlink(path);
	}
}

/* ---- claims ------------------------------------------------------------------------------ */

static const struct {
	const char *claims;
	enum token_fault fault;
} claim_table[] = {
	/* exp: a number, in seconds, to come */
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
	{"{\"sub\":\"alice\",\"exp\":9223372036854775808}", TOKEN_MALFORMED},
	{"{\"sub\":\"alice\",\"exp\":1e300}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":1e400}", TOKEN_MALFORMED},
	{"{\"sub\":\"alice\",\"exp\":-1}", TOKEN_EXPIRED},
	{"{\"sub\":\"alice\",\"exp\":-1e300}", TOKEN_NO_EXPIRY},
	{"{\"sub\":\"alice\",\"exp\":0}", TOKEN_EXPIRED},
	{"{\"sub\":\"alice\",\"exp\":-0.0}", TOKEN_EXPIRED},
	{"{\"sub\":\"alice\",\"exp\":NaN}", TOKEN_MALFORMED},
	{"{\"sub\":\"alice\",\"exp\":999999970}", TOKEN_EXPIRED},
	{"{\"sub\":\"alice\",\"exp\":999999971}", TOKEN_GOOD}, /* within the leeway */
	/* nbf: need not be there, but then is a number, in the past */
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
	/* two readers must not see two tokens */
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
	/* what is not known does no harm */
	{"{\"sub\":\"alice\",\"exp\":1000000100,\"admin\":true,\"iat\":\"never\"}", TOKEN_GOOD},
};

static void every_claim_is_checked_whatever_it_is_signed_with(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = checker_of(&makers[i]);

		for (size_t j = 0; j < COUNT_OF(claim_table); j++)
			expect(checker, make(&makers[i], claim_table[j].claims),
				claim_table[j].fault, claim_table[j].claims);
		token_checker_free(checker);
	}
}

static struct slice make_for(size_t subject_len)
{
	struct buffer claims = buffer_make(&arena, subject_len + 64);

	buffer_text(&claims, "{\"exp\":1000000100,\"sub\":\"");
	for (size_t i = 0; i < subject_len; i++)
		buffer_char(&claims, 'x');
	buffer_text(&claims, "\"}");
	return token_maker_make(&makers[HS], &arena, header_of(&makers[HS]), buffer_slice(&claims));
}

static void a_subject_has_128_bytes_at_most_and_a_token_8192(void **state)
{
	struct token_checker *checker = checker_of(&makers[HS]);
	struct slice token = make_for(6000);

	(void)state;
	expect(checker, make_for(128), TOKEN_GOOD, "128 bytes");
	expect(checker, make_for(129), TOKEN_NO_SUBJECT, "129 bytes");
	assert_true(token.len < TOKEN_SIZE_MAX);
	expect(checker, token, TOKEN_NO_SUBJECT, "a long token");
	token = make_for(6200);
	assert_true(token.len > TOKEN_SIZE_MAX);
	expect(checker, token, TOKEN_MALFORMED, "a longer token");
	token_checker_free(checker);
}

static const struct {
	const char *issuer, *audience;
	const char *claims; /* besides sub and exp */
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
		struct token_config config = config_of(&makers[HS]);
		struct token_checker *checker;
		char claims[256];

		config.issuer = party_table[i].issuer;
		config.audience = party_table[i].audience;
		checker = open_checker(&config);
		snprintf(claims, sizeof(claims), "{\"sub\":\"alice\",\"exp\":1000000100,%s}",
			party_table[i].claims);
		expect(checker, make(&makers[HS], claims), party_table[i].fault, claims);
		token_checker_free(checker);
	}
}

/* ---- headers ----------------------------------------------------------------------------- */

/* %s is the name of the algorithm. All are signed right. */
static const struct {
	const char *header;
	enum token_fault fault;
} header_table[] = {
	{"{\"alg\":\"%s\"}", TOKEN_GOOD},
	{"{\"typ\":\"at+jwt\",\"kid\":\"../../etc/passwd\",\"alg\":\"%s\"}", TOKEN_GOOD},
	/* keys that come with the token are not looked at */
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

/* The text with every %s replaced; formats of printf must be literals. */
static struct slice fill_in(const char *text, const char *name)
{
	struct buffer out = buffer_make(&arena, 256);

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
		struct token_checker *checker = checker_of(&makers[i]);

		for (size_t j = 0; j < COUNT_OF(header_table); j++) {
			struct slice header = fill_in(header_table[j].header, makers[i].algorithm);

			expect(checker,
				token_maker_make(&makers[i], &arena, header, slice_of(GOOD_CLAIMS)),
				header_table[j].fault, header_table[j].header);
		}
		token_checker_free(checker);
	}
}

/* ---- signatures -------------------------------------------------------------------------- */

static void a_token_of_one_algorithm_is_none_of_another(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = checker_of(&makers[i]);

		for (size_t j = 0; j < MAKERS; j++) {
			struct slice lying = token_maker_make(
				&makers[j], &arena, header_of(&makers[i]), slice_of(GOOD_CLAIMS));

			expect(checker, make(&makers[j], GOOD_CLAIMS),
				i == j ? TOKEN_GOOD : TOKEN_OTHER_ALGORITHM, makers[j].algorithm);
			expect(checker, lying, i == j ? TOKEN_GOOD : TOKEN_BAD_SIGNATURE,
				makers[j].algorithm);
		}
		token_checker_free(checker);
	}
}

static void a_token_of_another_key_of_the_same_kind_is_refused(void **state)
{
	(void)state;
	for (size_t i = RS; i < MAKERS; i++) {
		struct token_checker *checker = checker_of(&makers[i]);
		struct token_maker other;

		token_maker_init(&other, makers[i].algorithm);
		expect(checker, make(&other, GOOD_CLAIMS), TOKEN_BAD_SIGNATURE, other.algorithm);
		token_maker_release(&other);
		token_checker_free(checker);
	}
}

/* A good token of which the signature is replaced by `bytes`. */
static struct slice with_signature(const struct token_maker *maker, struct slice bytes)
{
	struct slice token = make(maker, GOOD_CLAIMS);
	struct buffer out = buffer_make(&arena, token.len);
	const char *last = memrchr(token.data, '.', token.len);

	buffer_bytes(&out, token.data, (size_t)(last + 1 - token.data));
	buffer_add(&out, to_base64url(&arena, bytes));
	return buffer_slice(&out);
}

static struct slice covered_by(struct slice token)
{
	const char *last = memrchr(token.data, '.', token.len);

	return slice_make(token.data, (size_t)(last - token.data));
}

static void a_signature_of_another_length_or_of_zeros_is_refused(void **state)
{
	static const char zeros[1024];

	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = checker_of(&makers[i]);
		struct slice right = token_maker_sign(
			&makers[i], &arena, covered_by(make(&makers[i], GOOD_CLAIMS)));
		struct buffer longer = buffer_make(&arena, 1024);

		expect(checker, with_signature(&makers[i], right), TOKEN_GOOD, "as it was signed");
		for (size_t len = 0; len <= 520; len++)
			expect(checker, with_signature(&makers[i], slice_make(zeros, len)),
				TOKEN_BAD_SIGNATURE, "zeros");
		for (size_t len = 0; len < right.len; len++)
			expect(checker, with_signature(&makers[i], slice_make(right.data, len)),
				TOKEN_BAD_SIGNATURE, "cut short");
		buffer_add(&longer, right);
		buffer_char(&longer, '\0');
		expect(checker, with_signature(&makers[i], buffer_slice(&longer)),
			TOKEN_BAD_SIGNATURE, "a zero behind");
		token_checker_free(checker);
	}
}

/* The order of P-256: 0 and what is not below it are no halves of a signature. */
static const char order[] = "\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"
			    "\xbc\xe6\xfa\xad\xa7\x17\x9e\x84\xf3\xb9\xca\xc2\xfc\x63\x25\x51";

static void halves_of_es256_are_above_0_and_below_the_order(void **state)
{
	struct token_checker *checker = checker_of(&makers[ES]);
	struct slice right =
		token_maker_sign(&makers[ES], &arena, covered_by(make(&makers[ES], GOOD_CLAIMS)));
	char bytes[64];

	(void)state;
	for (size_t half = 0; half < 64; half += 32) {
		memcpy(bytes, right.data, 64);
		memset(bytes + half, 0, 32);
		expect(checker, with_signature(&makers[ES], slice_make(bytes, 64)),
			TOKEN_BAD_SIGNATURE, "a half of zeros");
		memcpy(bytes + half, order, 32);
		expect(checker, with_signature(&makers[ES], slice_make(bytes, 64)),
			TOKEN_BAD_SIGNATURE, "a half that is the order");
		memset(bytes + half, 0xff, 32);
		expect(checker, with_signature(&makers[ES], slice_make(bytes, 64)),
			TOKEN_BAD_SIGNATURE, "a half above the order");
	}
	memcpy(bytes, order, 32);
	memcpy(bytes + 32, order, 32);
	expect(checker, with_signature(&makers[ES], slice_make(bytes, 64)), TOKEN_BAD_SIGNATURE,
		"both are the order");
	token_checker_free(checker);
}

static void der_is_no_signature_of_es256(void **state)
{
	struct token_checker *checker = checker_of(&makers[ES]);
	struct slice text = covered_by(make(&makers[ES], GOOD_CLAIMS));
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	unsigned char der[128];
	size_t len = sizeof(der);

	(void)state;
	assert_int_equal(EVP_DigestSignInit(digest, NULL, EVP_sha256(), NULL, makers[ES].key), 1);
	assert_int_equal(
		EVP_DigestSign(digest, der, &len, (const unsigned char *)text.data, text.len), 1);
	EVP_MD_CTX_free(digest);
	expect(checker, with_signature(&makers[ES], slice_make(der, len)), TOKEN_BAD_SIGNATURE,
		"DER");
	token_checker_free(checker);
}

/* The classic: the key that everybody knows, taken for a secret. */
static void a_public_key_signs_nothing(void **state)
{
	struct token_checker *checker = checker_of(&makers[RS]);
	struct token_config config = config_of(&makers[RS]);
	char why[TOKENS_WHY_SIZE] = "";

	(void)state;
	expect(checker,
		token_maker_make(
			&makers[HS], &arena, header_of(&makers[HS]), slice_of(GOOD_CLAIMS)),
		TOKEN_OTHER_ALGORITHM, "HS256 where RS256 is asked for");
	token_checker_free(checker);
	config.algorithm = "HS256";
	assert_null(token_checker_new(&config, why));
	assert_contains(slice_of(why), "PEM");
}

/* ---- the three parts --------------------------------------------------------------------- */

static void no_character_of_a_token_can_be_another(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = checker_of(&makers[i]);
		struct slice token = make(&makers[i], GOOD_CLAIMS);
		char *bytes = (char *)(uintptr_t)arena_copy(&arena, token).data;

		for (size_t at = 0; at < token.len; at++) {
			for (int bit = 0; bit < 8; bit++) {
				struct token_claims claims;

				bytes[at] = (char)(token.data[at] ^ (1 << bit));
				assert_int_not_equal(
					token_check(checker, &arena, slice_make(bytes, token.len),
						NOW_US, &claims),
					TOKEN_GOOD);
			}
			bytes[at] = token.data[at];
		}
		expect(checker, slice_make(bytes, token.len), TOKEN_GOOD, "as it was");
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
	HEAD "." BODY ".AAAA.AAAA.AAAA", /* as JWE has it */
	HEAD "." BODY ".AA==",
	HEAD "." BODY ".AA+/",
	HEAD "." BODY ".A",
	HEAD "." BODY ".AB", /* bits left over */
	HEAD "." BODY ".AAB",
	HEAD "." BODY ".AA AA",
	HEAD "." BODY ".AAAA\n",
	" " HEAD "." BODY ".AAAA",
	"{\"payload\":\"" BODY "\",\"protected\":\"" HEAD "\",\"signature\":\"AAAA\"}",
};

static void what_has_not_three_parts_of_base64url_is_no_token(void **state)
{
	struct token_checker *checker = checker_of(&makers[HS]);

	(void)state;
	for (size_t i = 0; i < COUNT_OF(no_tokens); i++)
		expect(checker, slice_of(no_tokens[i]), TOKEN_MALFORMED, no_tokens[i]);
	expect(checker, (struct slice){0}, TOKEN_MALFORMED, "nothing");
	expect(checker, slice_of(HEAD "." BODY "."), TOKEN_BAD_SIGNATURE, "no signature");
	token_checker_free(checker);
}

static void a_good_token_with_something_around_it_is_none(void **state)
{
	static const char *const around[] = {"=", "==", ".", " ", "\n", "\t"};
	struct token_checker *checker = checker_of(&makers[HS]);
	struct slice token = make(&makers[HS], GOOD_CLAIMS);

	(void)state;
	for (size_t i = 0; i < COUNT_OF(around); i++) {
		struct buffer behind = buffer_make(&arena, 256);
		struct buffer before = buffer_make(&arena, 256);

		buffer_add(&behind, token);
		buffer_text(&behind, around[i]);
		expect(checker, buffer_slice(&behind), TOKEN_MALFORMED, "behind");
		buffer_text(&before, around[i]);
		buffer_add(&before, token);
		expect(checker, buffer_slice(&before), TOKEN_MALFORMED, "before");
	}
	token_checker_free(checker);
}

/* ---- keys -------------------------------------------------------------------------------- */

static void refuse_key(const char *algorithm, struct slice bytes, const char *word)
{
	struct token_config config = config_of(&makers[HS]);
	char why[TOKENS_WHY_SIZE] = "";
	char path[64];

	write_key_file(path, bytes);
	config.key_file = path;
	config.algorithm = algorithm;
	assert_null(token_checker_new(&config, why));
	assert_contains(slice_of(why), "--jwt-key: ");
	assert_contains(slice_of(why), word);
	assert_int_equal(ERR_peek_error(), 0);
	unlink(path);
}

static struct slice pem_of(EVP_PKEY *key, bool is_private)
{
	BIO *out = BIO_new(BIO_s_mem());
	struct slice copy;
	char *text;
	long len;

	assert_true(is_private ? PEM_write_bio_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL)
			       : PEM_write_bio_PUBKEY(out, key));
	len = BIO_get_mem_data(out, &text);
	copy = arena_copy(&arena, slice_make(text, (size_t)len));
	BIO_free(out);
	return copy;
}

static struct slice encrypted_pem_of(EVP_PKEY *key)
{
	BIO *out = BIO_new(BIO_s_mem());
	struct slice copy;
	char *text;
	long len;

	assert_true(
		PEM_write_bio_PKCS8PrivateKey(out, key, EVP_aes_128_cbc(), "pass", 4, NULL, NULL));
	len = BIO_get_mem_data(out, &text);
	copy = arena_copy(&arena, slice_make(text, (size_t)len));
	BIO_free(out);
	return copy;
}

static void a_key_of_the_wrong_kind_is_refused(void **state)
{
	EVP_PKEY *weak = EVP_RSA_gen(1024), *curve = EVP_EC_gen("P-384");
	EVP_PKEY *edwards = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");

	(void)state;
	refuse_key("RS256", pem_of(makers[ES].key, false), "RSA");
	refuse_key("ES256", pem_of(makers[RS].key, false), "P-256");
	refuse_key("ES256", pem_of(edwards, false), "P-256");
	refuse_key("RS256", pem_of(weak, false), "2048");
	refuse_key("ES256", pem_of(curve, false), "P-256");
	for (size_t i = RS; i < MAKERS; i++) {
		const char *algorithm = makers[i].algorithm;

		refuse_key(algorithm, pem_of(makers[i].key, true), "public key");
		refuse_key(algorithm, encrypted_pem_of(makers[i].key), "public key");
		refuse_key(algorithm, slice_of(MAKER_SECRET), "as PEM");
		refuse_key(algorithm, slice_of(""), "as PEM");
		refuse_key("HS256", pem_of(makers[i].key, false), "PEM");
		refuse_key("HS256", pem_of(makers[i].key, true), "PEM");
	}
	EVP_PKEY_free(weak);
	EVP_PKEY_free(curve);
	EVP_PKEY_free(edwards);
}

static void a_secret_has_32_to_4096_bytes_without_its_last_line_breaks(void **state)
{
	static char longest[4097];

	(void)state;
	memset(longest, 's', sizeof(longest));
	refuse_key("HS256", slice_make(longest, 31), "32 to 4096");
	refuse_key("HS256", slice_make(longest, 4097), "32 to 4096");
	refuse_key("HS256", slice_of("0123456789abcdef0123456789abcde\r\n\n"), "32 to 4096");
	refuse_key("HS256", slice_of(""), "32 to 4096");
}

static void expect_secret(struct slice file, enum token_fault fault, const char *what)
{
	struct token_config config = config_of(&makers[HS]);
	struct token_checker *checker;
	char path[64];

	write_key_file(path, file);
	config.key_file = path;
	checker = open_checker(&config);
	expect(checker, make(&makers[HS], GOOD_CLAIMS), fault, what);
	token_checker_free(checker);
	unlink(path);
}

static void what_an_editor_leaves_at_the_end_is_no_part_of_a_secret(void **state)
{
	(void)state;
	expect_secret(slice_of(MAKER_SECRET "\n"), TOKEN_GOOD, "a line feed");
	expect_secret(slice_of(MAKER_SECRET "\r\n\n"), TOKEN_GOOD, "some more");
	expect_secret(slice_of(MAKER_SECRET " "), TOKEN_BAD_SIGNATURE, "a blank counts");
	expect_secret(slice_make(MAKER_SECRET "\0x", sizeof(MAKER_SECRET) + 1), TOKEN_BAD_SIGNATURE,
		"so do bytes");
	expect_secret(slice_of("\n" MAKER_SECRET), TOKEN_BAD_SIGNATURE, "in front it counts");
}

static void a_file_that_is_not_there_and_an_algorithm_that_is_not_known_are_named(void **state)
{
	struct token_config config = config_of(&makers[HS]);
	char why[TOKENS_WHY_SIZE] = "";

	(void)state;
	config.key_file = "/nowhere/key.pem";
	assert_null(token_checker_new(&config, why));
	assert_contains(slice_of(why), "/nowhere/key.pem cannot be read");
	config.key_file = "/";
	assert_null(token_checker_new(&config, why));
	assert_contains(slice_of(why), "cannot be read");
	config.algorithm = "none";
	assert_null(token_checker_new(&config, why));
	assert_contains(slice_of(why), "HS256, RS256 or ES256");
	assert_true(token_algorithm_is_known("ES256"));
	assert_false(token_algorithm_is_known("es256"));
	assert_false(token_algorithm_is_known(""));
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
		cmocka_unit_test(a_token_of_one_algorithm_is_none_of_another),
		cmocka_unit_test(a_token_of_another_key_of_the_same_kind_is_refused),
		cmocka_unit_test(a_signature_of_another_length_or_of_zeros_is_refused),
		cmocka_unit_test(halves_of_es256_are_above_0_and_below_the_order),
		cmocka_unit_test(der_is_no_signature_of_es256),
		cmocka_unit_test(a_public_key_signs_nothing),
		cmocka_unit_test(no_character_of_a_token_can_be_another),
		cmocka_unit_test(what_has_not_three_parts_of_base64url_is_no_token),
		cmocka_unit_test(a_good_token_with_something_around_it_is_none),
		cmocka_unit_test(a_key_of_the_wrong_kind_is_refused),
		cmocka_unit_test(a_secret_has_32_to_4096_bytes_without_its_last_line_breaks),
		cmocka_unit_test(what_an_editor_leaves_at_the_end_is_no_part_of_a_secret),
		cmocka_unit_test(
			a_file_that_is_not_there_and_an_algorithm_that_is_not_known_are_named),
		cmocka_unit_test(every_fault_has_a_sentence),
	};

	return cmocka_run_group_tests(tests, make_keys, drop_keys);
}

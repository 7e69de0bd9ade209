/* Signatures of tokens: only the right one is accepted. */
#include <openssl/evp.h>

#include "base/buffer.h"
#include "tokens_fixture.h"

static void a_token_of_one_algorithm_is_none_of_another(void **state)
{
	(void)state;
	for (size_t i = 0; i < MAKERS; i++) {
		struct token_checker *checker = token_checker_of(&token_makers[i]);

		for (size_t j = 0; j < MAKERS; j++) {
			struct slice lying = token_maker_make(&token_makers[j], &token_arena,
				token_header_of(&token_makers[i]), slice_of(GOOD_CLAIMS));

			expect_token(checker, make_token(&token_makers[j], GOOD_CLAIMS),
				i == j ? TOKEN_GOOD : TOKEN_OTHER_ALGORITHM,
				token_makers[j].algorithm);
			expect_token(checker, lying, i == j ? TOKEN_GOOD : TOKEN_BAD_SIGNATURE,
				token_makers[j].algorithm);
		}
		token_checker_free(checker);
	}
}

static void a_token_of_another_key_of_the_same_kind_is_refused(void **state)
{
	(void)state;
	for (size_t i = RS; i < MAKERS; i++) {
		struct token_checker *checker = token_checker_of(&token_makers[i]);
		struct token_maker other;

		token_maker_init(&other, token_makers[i].algorithm);
		expect_token(checker, make_token(&other, GOOD_CLAIMS), TOKEN_BAD_SIGNATURE,
			other.algorithm);
		token_maker_release(&other);
		token_checker_free(checker);
	}
}

/* Returns `token` with another signature. */
static struct slice with_signature(struct slice token, struct slice bytes)
{
	struct buffer out = buffer_make(&token_arena, token.len);
	const char *last = memrchr(token.data, '.', token.len);

	buffer_bytes(&out, token.data, (size_t)(last + 1 - token.data));
	buffer_add(&out, to_base64url(&token_arena, bytes));
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
		struct token_checker *checker = token_checker_of(&token_makers[i]);
		struct slice token = make_token(&token_makers[i], GOOD_CLAIMS);
		struct slice right =
			token_maker_sign(&token_makers[i], &token_arena, covered_by(token));
		struct buffer longer = buffer_make(&token_arena, 1024);

		expect_token(checker, with_signature(token, right), TOKEN_GOOD, "as it was signed");
		for (size_t len = 0; len <= 520; len++)
			expect_token(checker, with_signature(token, slice_make(zeros, len)),
				TOKEN_BAD_SIGNATURE, "zeros");
		for (size_t len = 0; len < right.len; len++)
			expect_token(checker, with_signature(token, slice_make(right.data, len)),
				TOKEN_BAD_SIGNATURE, "cut short");
		buffer_add(&longer, right);
		buffer_char(&longer, '\0');
		expect_token(checker, with_signature(token, buffer_slice(&longer)),
			TOKEN_BAD_SIGNATURE, "a zero behind");
		token_checker_free(checker);
	}
}

/* The order of P-256: half of a signature must not be 0 and must be below it. */
static const char order[] = "\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"
			    "\xbc\xe6\xfa\xad\xa7\x17\x9e\x84\xf3\xb9\xca\xc2\xfc\x63\x25\x51";

static void halves_of_es256_are_above_0_and_below_the_order(void **state)
{
	struct token_checker *checker = token_checker_of(&token_makers[ES]);
	struct slice token = make_token(&token_makers[ES], GOOD_CLAIMS);
	struct slice right = token_maker_sign(&token_makers[ES], &token_arena, covered_by(token));
	char bytes[64];

	(void)state;
	for (size_t half = 0; half < 64; half += 32) {
		memcpy(bytes, right.data, 64);
		memset(bytes + half, 0, 32);
		expect_token(checker, with_signature(token, slice_make(bytes, 64)),
			TOKEN_BAD_SIGNATURE, "a half of zeros");
		memcpy(bytes + half, order, 32);
		expect_token(checker, with_signature(token, slice_make(bytes, 64)),
			TOKEN_BAD_SIGNATURE, "a half that is the order");
		memset(bytes + half, 0xff, 32);
		expect_token(checker, with_signature(token, slice_make(bytes, 64)),
			TOKEN_BAD_SIGNATURE, "a half above the order");
	}
	memcpy(bytes, order, 32);
	memcpy(bytes + 32, order, 32);
	expect_token(checker, with_signature(token, slice_make(bytes, 64)), TOKEN_BAD_SIGNATURE,
		"both are the order");
	token_checker_free(checker);
}

static void der_is_no_signature_of_es256(void **state)
{
	struct token_checker *checker = token_checker_of(&token_makers[ES]);
	struct slice token = make_token(&token_makers[ES], GOOD_CLAIMS);
	struct slice text = covered_by(token);
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	unsigned char der[128];
	size_t len = sizeof(der);

	(void)state;
	assert_int_equal(
		EVP_DigestSignInit(digest, NULL, EVP_sha256(), NULL, token_makers[ES].key), 1);
	assert_int_equal(
		EVP_DigestSign(digest, der, &len, (const unsigned char *)text.data, text.len), 1);
	EVP_MD_CTX_free(digest);
	expect_token(
		checker, with_signature(token, slice_make(der, len)), TOKEN_BAD_SIGNATURE, "DER");
	token_checker_free(checker);
}

/* The classic attack: the public key, which everybody knows, used as a secret. */
static void a_public_key_signs_nothing(void **state)
{
	struct token_checker *checker = token_checker_of(&token_makers[RS]);
	struct token_config config = token_config_of(&token_makers[RS]);
	char why[TOKENS_WHY_SIZE] = "";

	(void)state;
	expect_token(checker,
		token_maker_make(&token_makers[HS], &token_arena,
			token_header_of(&token_makers[HS]), slice_of(GOOD_CLAIMS)),
		TOKEN_OTHER_ALGORITHM, "HS256 where RS256 is asked for");
	token_checker_free(checker);
	config.algorithm = "HS256";
	assert_null(token_checker_new(&config, why));
	assert_contains(slice_of(why), "PEM");
}

int run_token_signature_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_of_one_algorithm_is_none_of_another),
		cmocka_unit_test(a_token_of_another_key_of_the_same_kind_is_refused),
		cmocka_unit_test(a_signature_of_another_length_or_of_zeros_is_refused),
		cmocka_unit_test(halves_of_es256_are_above_0_and_below_the_order),
		cmocka_unit_test(der_is_no_signature_of_es256),
		cmocka_unit_test(a_public_key_signs_nothing),
	};

	return cmocka_run_group_tests_name("signatures of tokens", tests, NULL, NULL);
}

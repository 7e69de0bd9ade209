/* The keys that verify tokens: which files are refused, and with which message. */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <unistd.h>

#include "tokens_fixture.h"

static void refuse_key(const char *algorithm, struct slice bytes, const char *word)
{
	struct token_config config = token_config_of(&token_makers[HS]);
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
	copy = arena_copy(&token_arena, slice_make(text, (size_t)len));
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
	copy = arena_copy(&token_arena, slice_make(text, (size_t)len));
	BIO_free(out);
	return copy;
}

static void a_key_of_the_wrong_kind_is_refused(void **state)
{
	EVP_PKEY *weak = EVP_RSA_gen(1024), *curve = EVP_EC_gen("P-384");
	EVP_PKEY *edwards = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");

	(void)state;
	refuse_key("RS256", pem_of(token_makers[ES].key, false), "RSA");
	refuse_key("ES256", pem_of(token_makers[RS].key, false), "P-256");
	refuse_key("ES256", pem_of(edwards, false), "P-256");
	refuse_key("RS256", pem_of(weak, false), "2048");
	refuse_key("ES256", pem_of(curve, false), "P-256");
	for (size_t i = RS; i < MAKERS; i++) {
		const char *algorithm = token_makers[i].algorithm;

		refuse_key(algorithm, pem_of(token_makers[i].key, true), "public key");
		refuse_key(algorithm, encrypted_pem_of(token_makers[i].key), "public key");
		refuse_key(algorithm, slice_of(MAKER_SECRET), "in PEM");
		refuse_key(algorithm, slice_of(""), "in PEM");
		refuse_key("HS256", pem_of(token_makers[i].key, false), "PEM");
		refuse_key("HS256", pem_of(token_makers[i].key, true), "PEM");
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
	struct token_config config = token_config_of(&token_makers[HS]);
	struct token_checker *checker;
	char path[64];

	write_key_file(path, file);
	config.key_file = path;
	checker = open_token_checker(&config);
	expect_token(checker, make_token(&token_makers[HS], GOOD_CLAIMS), fault, what);
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
	struct token_config config = token_config_of(&token_makers[HS]);
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

int run_token_key_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_of_the_wrong_kind_is_refused),
		cmocka_unit_test(a_secret_has_32_to_4096_bytes_without_its_last_line_breaks),
		cmocka_unit_test(what_an_editor_leaves_at_the_end_is_no_part_of_a_secret),
		cmocka_unit_test(
			a_file_that_is_not_there_and_an_algorithm_that_is_not_known_are_named),
	};

	return cmocka_run_group_tests_name("keys of tokens", tests, NULL, NULL);
}

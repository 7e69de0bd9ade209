/*
 * The table `algorithms` has one row per algorithm, with the functions that read its key and verify
 * its signatures. The algorithm comes from the configuration and never from the token, which
 * prevents the classic attacks on JWT: "alg":"none", and an RSA public key used as an HMAC secret
 * (read_secret() refuses public keys for the same reason). The signature is verified before the
 * token's claims are parsed.
 *
 * Buffers that held the key file or a MAC are overwritten after use, so that secrets do not stay in
 * memory longer than needed.
 */
#include "access/tokens.h"

#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

#define SECRET_MIN 32
/* a secret must contain at least this many different bytes; 32 random hexadecimal digits
 * practically always contain more */
#define SECRET_VALUES_MIN 8
#define SECRET_MAX 4096
#define KEY_FILE_MAX (64 * 1024)
#define RSA_BITS_MIN 2048
#define ES256_HALF 32
#define DER_MAX 80

struct token_checker {
	const struct algorithm *algorithm;
	struct slice secret; /* for HS256; owned */
	EVP_PKEY *key;       /* for RS256 and ES256 */
	const char *issuer;
	const char *audience;
	int64_t leeway_us;
	unsigned char digest[SHA256_SIZE]; /* SHA-256 of the key file */
};

struct algorithm {
	const char *name;
	bool (*read_key)(struct token_checker *checker, struct slice file, char *why);
	bool (*is_signed)(
		const struct token_checker *checker, struct slice text, struct slice signature);
};

static bool wrong(char *why, const char *what)
{
	snprintf(why, TOKENS_WHY_SIZE, "--jwt-key: %s", what);
	return false;
}

/* ---- HS256 ------------------------------------------------------------------------------- */

static bool ends_with_line_break(struct slice text)
{
	return text.len > 0 && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r');
}

/* Returns whether the bytes are a public key or a certificate in DER. */
static bool is_public_der(struct slice file)
{
	const unsigned char *key = (const unsigned char *)file.data, *certificate = key;
	EVP_PKEY *read_key = d2i_PUBKEY(NULL, &key, (long)file.len);
	X509 *read_certificate = d2i_X509(NULL, &certificate, (long)file.len);
	bool is = read_key || read_certificate;

	EVP_PKEY_free(read_key);
	X509_free(read_certificate);
	ERR_clear_error();
	return is;
}

/* Returns whether the secret can be guessed, because it consists of few different bytes or repeats
 * a short text. */
static bool is_trivial(struct slice secret)
{
	bool seen[256] = {0};
	size_t distinct = 0;

	for (size_t i = 0; i < secret.len; i++) {
		bool *known = &seen[(unsigned char)secret.data[i]];

		distinct += !*known;
		*known = true;
	}
	for (size_t period = 1; period <= secret.len / 2; period++) {
		if (memcmp(secret.data, secret.data + period, secret.len - period) == 0)
			return true;
	}
	return distinct < SECRET_VALUES_MIN;
}

static bool read_secret(struct token_checker *checker, struct slice file, char *why)
{
	char *copy;

	if (memmem(file.data, file.len, "-----BEGIN", 10))
		return wrong(why, "this is a PEM file, not a secret for HS256; anyone who knows a "
				  "public key could sign tokens with it");
	/* checked before line breaks are cut off, because a key in DER may end with the byte of a
	 * line break */
	if (is_public_der(file))
		return wrong(why, "this is a public key, not a secret for HS256; anyone who knows "
				  "a public key could sign tokens with it");
	while (ends_with_line_break(file))
		file.len--; /* editors and echo add line breaks */
	if (file.len < SECRET_MIN || file.len > SECRET_MAX)
		return wrong(why, "a secret for HS256 must be 32 to 4096 bytes long");
	if (is_trivial(file))
		return wrong(why, "this secret can be guessed; use random bytes, for example from "
				  "openssl rand -base64 48");
	copy = qp_malloc(file.len);
	memcpy(copy, file.data, file.len);
	checker->secret = slice_make(copy, file.len);
	return true;
}

static bool is_signed_hs256(
	const struct token_checker *checker, struct slice text, struct slice signature)
{
	unsigned char mac[SHA256_SIZE];
	unsigned len = 0;
	bool good = signature.len == SHA256_SIZE &&
		    HMAC(EVP_sha256(), checker->secret.data, (int)checker->secret.len,
			    (const unsigned char *)text.data, text.len, mac, &len) &&
		    len == SHA256_SIZE && CRYPTO_memcmp(mac, signature.data, SHA256_SIZE) == 0;

	OPENSSL_cleanse(mac, sizeof(mac)); /* anyone who reads the MAC could forge this token */
	return good;
}

/* ---- RS256 and ES256 --------------------------------------------------------------------- */

/* OpenSSL calls this function for the passphrase of a key. Without such a function, OpenSSL would
 * prompt on the terminal and wait. */
static int know_no_passphrase(char *passphrase, int size, int is_writing, void *context)
{
	(void)passphrase, (void)size, (void)is_writing, (void)context;
	return -1;
}

/* Reads the public key from PEM text that is a public key or a certificate. Returns NULL on
 * failure. */
static EVP_PKEY *read_public(struct slice file)
{
	BIO *in = BIO_new_mem_buf(file.data, (int)file.len);
	EVP_PKEY *key = in ? PEM_read_bio_PUBKEY(in, NULL, know_no_passphrase, NULL) : NULL;
	X509 *certificate;

	if (in && !key && BIO_reset(in) == 1 &&
		(certificate = PEM_read_bio_X509(in, NULL, know_no_passphrase, NULL))) {
		key = X509_get_pubkey(certificate);
		X509_free(certificate);
	}
	BIO_free(in);
	ERR_clear_error();
	return key;
}

static bool read_rsa(struct token_checker *checker, struct slice file, char *why)
{
	checker->key = read_public(file);
	if (!checker->key || !EVP_PKEY_is_a(checker->key, "RSA"))
		return wrong(why, "RS256 requires an RSA public key in PEM");
	if (EVP_PKEY_get_bits(checker->key) < RSA_BITS_MIN)
		return wrong(why, "an RSA key must have at least 2048 bits");
	return true;
}

static bool read_ec(struct token_checker *checker, struct slice file, char *why)
{
	char group[32] = "";

	checker->key = read_public(file);
	if (!checker->key || !EVP_PKEY_is_a(checker->key, "EC") ||
		!EVP_PKEY_get_group_name(checker->key, group, sizeof(group), NULL) ||
		strcmp(group, "prime256v1") != 0)
		return wrong(why, "ES256 requires a public key on the curve P-256 in PEM");
	return true;
}

static bool is_signed_by_key(
	const struct token_checker *checker, struct slice text, struct slice signature)
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	bool good = digest &&
		    EVP_DigestVerifyInit(digest, NULL, EVP_sha256(), NULL, checker->key) == 1 &&
		    EVP_DigestVerify(digest, (const unsigned char *)signature.data, signature.len,
			    (const unsigned char *)text.data, text.len) == 1;

	EVP_MD_CTX_free(digest);
	ERR_clear_error(); /* otherwise TLS on this thread would take the error for its own */
	return good;
}

/* Converts the two numbers of a JWS signature to DER, which OpenSSL requires. Returns the length,
 * or 0 on failure. */
static int es256_to_der(struct slice signature, unsigned char der[DER_MAX])
{
	const unsigned char *bytes = (const unsigned char *)signature.data;
	BIGNUM *r = BN_bin2bn(bytes, ES256_HALF, NULL);
	BIGNUM *s = BN_bin2bn(bytes + ES256_HALF, ES256_HALF, NULL);
	ECDSA_SIG *pair = ECDSA_SIG_new();
	int len = 0;

	if (r && s && pair && ECDSA_SIG_set0(pair, r, s)) {
		r = s = NULL; /* `pair` now owns both numbers and will free them */
		if (i2d_ECDSA_SIG(pair, NULL) <= DER_MAX)
			len = i2d_ECDSA_SIG(pair, &der);
	}
	BN_free(r);
	BN_free(s);
	ECDSA_SIG_free(pair);
	return len > 0 ? len : 0;
}

static bool is_signed_es256(
	const struct token_checker *checker, struct slice text, struct slice signature)
{
	unsigned char der[DER_MAX];
	int len;

	if (signature.len != (size_t)2 * ES256_HALF)
		return false;
	len = es256_to_der(signature, der);
	return len > 0 &&
	       is_signed_by_key(checker, text, slice_make((const char *)der, (size_t)len));
}

/* ---- creating and freeing ---------------------------------------------------------------- */

static const struct algorithm algorithms[] = {
	{"HS256", read_secret, is_signed_hs256},
	{"RS256", read_rsa, is_signed_by_key},
	{"ES256", read_ec, is_signed_es256},
};

static const struct algorithm *find_algorithm(const char *name)
{
	for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
		if (strcmp(algorithms[i].name, name) == 0)
			return &algorithms[i];
	}
	return NULL;
}

bool token_algorithm_is_known(const char *name)
{
	return find_algorithm(name) != NULL;
}

static bool read_key(struct token_checker *checker, const char *path, char *why)
{
	char *bytes = qp_malloc(KEY_FILE_MAX);
	ssize_t len = file_read_start(path, bytes, KEY_FILE_MAX);
	bool good = false;

	if (len < 0)
		snprintf(why, TOKENS_WHY_SIZE, "--jwt-key: %s cannot be read: %s", path,
			strerror(errno));
	else if (file_is_anyones(path))
		snprintf(why, TOKENS_WHY_SIZE, "--jwt-key: " FILE_IS_ANYONES, path, path);
	else
		good = checker->algorithm->read_key(checker, slice_make(bytes, (size_t)len), why);
	if (good)
		digest_sha256(slice_make(bytes, (size_t)len), checker->digest);
	OPENSSL_cleanse(bytes, KEY_FILE_MAX);
	free(bytes);
	return good;
}

struct token_checker *token_checker_new(const struct token_config *config, char *why)
{
	struct token_checker *checker = qp_calloc(1, sizeof(*checker));

	checker->algorithm = find_algorithm(config->algorithm);
	checker->issuer = config->issuer;
	checker->audience = config->audience;
	checker->leeway_us = config->leeway_us;
	if (checker->algorithm && read_key(checker, config->key_file, why))
		return checker;
	if (!checker->algorithm)
		snprintf(why, TOKENS_WHY_SIZE, "--jwt-algorithm must be HS256, RS256 or ES256");
	token_checker_free(checker);
	return NULL;
}

void token_checker_free(struct token_checker *checker)
{
	char *secret = (char *)(uintptr_t)checker->secret.data;

	if (secret)
		OPENSSL_cleanse(secret, checker->secret.len);
	free(secret);
	EVP_PKEY_free(checker->key);
	free(checker);
}

bool token_checker_is_same(const struct token_checker *a, const struct token_checker *b)
{
	return memcmp(a->digest, b->digest, SHA256_SIZE) == 0;
}

/* ---- checking ---------------------------------------------------------------------------- */

#define TOO_MANY_TEXT                                                                              \
	"the token was not checked: too many bad tokens came from this address; try again in a "   \
	"second"

const char *token_fault_text(enum token_fault fault)
{
	static const char *const texts[TOKEN_FAULTS] = {
		[TOKEN_GOOD] = "the token is good",
		[TOKEN_MALFORMED] = "the token is not a JWT",
		[TOKEN_OTHER_ALGORITHM] = "the token is signed with another algorithm",
		[TOKEN_BAD_SIGNATURE] = "the signature of the token is wrong",
		[TOKEN_NO_EXPIRY] = "the token has no exp in seconds since 1970",
		[TOKEN_EXPIRED] = "the token has expired",
		[TOKEN_NOT_YET] = "the token is not valid yet",
		[TOKEN_OTHER_ISSUER] = "the token comes from another issuer",
		[TOKEN_OTHER_AUDIENCE] = "the token is for another audience",
		[TOKEN_NO_SUBJECT] = "the token's sub is not a user id of 1 to 128 bytes",
		[TOKEN_NOT_CHECKED] = TOO_MANY_TEXT,
	};

	return texts[fault];
}

/* Decodes a JSON object in base64url. Returns NULL if `part` is not such an object. */
static json_t *decode_object(struct arena *arena, struct slice part)
{
	char why[JSON_WHY_SIZE];
	struct slice text;

	return text_from_base64url(arena, part, &text) ? json_parse_object(text, why) : NULL;
}

static enum token_fault check_header(const struct token_checker *checker, const json_t *header)
{
	const char *algorithm = json_string_value(json_object_get(header, "alg"));

	/* "crit" lists extensions that the receiver must support. We support none. */
	if (!header || !algorithm || json_object_get(header, "crit"))
		return TOKEN_MALFORMED;
	return strcmp(algorithm, checker->algorithm->name) == 0 ? TOKEN_GOOD
								: TOKEN_OTHER_ALGORITHM;
}

/* Reads the token's claim `name` as a NumericDate: seconds, perhaps with a fraction. Returns false
 * if the claim is not such a number. */
static bool read_date(const json_t *claims, const char *name, int64_t *date_us)
{
	const json_t *value = json_object_get(claims, name);
	double seconds = json_number_value(value);

	if (!json_is_number(value) || !(seconds > -1e11 && seconds < 1e11))
		return false;
	*date_us = (int64_t)(seconds * 1e6);
	return true;
}

static enum token_fault check_dates(
	const struct token_checker *checker, const json_t *claims, int64_t now_us, int64_t *ends_us)
{
	int64_t expires_us, not_before_us;

	if (!read_date(claims, "exp", &expires_us))
		return TOKEN_NO_EXPIRY;
	*ends_us = expires_us + checker->leeway_us;
	if (now_us >= *ends_us)
		return TOKEN_EXPIRED;
	if (!json_object_get(claims, "nbf"))
		return TOKEN_GOOD;
	if (!read_date(claims, "nbf", &not_before_us) ||
		now_us < not_before_us - checker->leeway_us)
		return TOKEN_NOT_YET;
	return TOKEN_GOOD;
}

static bool json_is_text(const json_t *value, const char *text)
{
	return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Returns whether `name` is in `audience`, which is a string or a list of strings. */
static bool is_for(const json_t *audience, const char *name)
{
	if (json_is_text(audience, name))
		return true;
	for (size_t i = 0; i < json_array_size(audience); i++) {
		if (json_is_text(json_array_get(audience, i), name))
			return true;
	}
	return false;
}

/* Does not check for UTF-8, because the JSON parser has already done so. */
static bool is_user_id(struct slice subject)
{
	return subject.len > 0 && subject.len <= TOKEN_SUBJECT_MAX && !text_has_control(subject);
}

static struct slice subject_of(const json_t *claims)
{
	const json_t *subject = json_object_get(claims, "sub");

	return slice_make(json_string_value(subject), json_string_length(subject));
}

static enum token_fault check_claims(
	const struct token_checker *checker, const json_t *claims, int64_t now_us, int64_t *ends_us)
{
	enum token_fault fault = check_dates(checker, claims, now_us, ends_us);

	if (fault != TOKEN_GOOD)
		return fault;
	if (*checker->issuer && !json_is_text(json_object_get(claims, "iss"), checker->issuer))
		return TOKEN_OTHER_ISSUER;
	if (*checker->audience && !is_for(json_object_get(claims, "aud"), checker->audience))
		return TOKEN_OTHER_AUDIENCE;
	return is_user_id(subject_of(claims)) ? TOKEN_GOOD : TOKEN_NO_SUBJECT;
}

static enum token_fault take_claims(const struct token_checker *checker, struct arena *arena,
	struct slice part, int64_t now_us, struct token_claims *claims)
{
	json_t *object = decode_object(arena, part);
	int64_t ends_us;
	enum token_fault fault =
		object ? check_claims(checker, object, now_us, &ends_us) : TOKEN_MALFORMED;

	if (fault == TOKEN_GOOD) {
		claims->subject = arena_copy(arena, subject_of(object));
		claims->ends_us = ends_us;
	}
	json_decref(object);
	return fault;
}

enum token_fault token_check(const struct token_checker *checker, struct arena *arena,
	struct slice token, int64_t now_us, struct token_claims *claims)
{
	struct slice rest = token, head = slice_cut(&rest, '.'), body = slice_cut(&rest, '.');
	struct slice covered, signature;
	enum token_fault fault;
	json_t *header;

	if (token.len > TOKEN_SIZE_MAX || !rest.data ||
		!text_from_base64url(arena, rest, &signature))
		return TOKEN_MALFORMED;
	header = decode_object(arena, head);
	fault = check_header(checker, header);
	json_decref(header);
	if (fault != TOKEN_GOOD)
		return fault;
	covered = slice_make(token.data, head.len + 1 + body.len);
	if (!checker->algorithm->is_signed(checker, covered, signature))
		return TOKEN_BAD_SIGNATURE;
	return take_claims(checker, arena, body, now_us, claims);
}

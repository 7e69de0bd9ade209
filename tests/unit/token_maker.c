#include "token_maker.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buffer.h"

/* Not assert(), which may be switched off: the calls must run. */
static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "token_maker: %s\n", what);
	abort();
}

/* ---- files ------------------------------------------------------------------------------- */

void write_key_file(char *path, struct slice bytes)
{
	int fd;

	strcpy(path, "/tmp/quipu-key-XXXXXX");
	fd = mkstemp(path);
	must(fd >= 0 && write(fd, bytes.data, bytes.len) == (ssize_t)bytes.len, path);
	close(fd);
}

static void write_public_key(char *path, EVP_PKEY *key)
{
	BIO *out = BIO_new(BIO_s_mem());
	char *text;
	long len;

	must(out && PEM_write_bio_PUBKEY(out, key), "a key is written");
	len = BIO_get_mem_data(out, &text);
	write_key_file(path, slice_make(text, (size_t)len));
	BIO_free(out);
}

void token_maker_init(struct token_maker *maker, const char *algorithm)
{
	maker->algorithm = algorithm;
	maker->key = NULL;
	if (strcmp(algorithm, "HS256") == 0) {
		write_key_file(maker->file, slice_of(MAKER_SECRET));
		return;
	}
	maker->key = strcmp(algorithm, "RS256") == 0 ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
	must(maker->key != NULL, "a key is made");
	write_public_key(maker->file, maker->key);
}

void token_maker_release(struct token_maker *maker)
{
	EVP_PKEY_free(maker->key);
	unlink(maker->file);
}

/* ---- tokens ------------------------------------------------------------------------------ */

struct slice to_base64url(struct arena *arena, struct slice bytes)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	struct buffer out = buffer_make(arena, bytes.len * 4 / 3 + 4);
	unsigned bits = 0, held = 0;

	for (size_t i = 0; i < bytes.len; i++) {
		bits = (bits << 8 | (unsigned char)bytes.data[i]) & 0xffff;
		for (held += 8; held >= 6; held -= 6)
			buffer_char(&out, digits[bits >> (held - 6) & 63]);
	}
	if (held > 0)
		buffer_char(&out, digits[bits << (6 - held) & 63]);
	return buffer_slice(&out);
}

static struct slice sign_with_secret(struct arena *arena, struct slice text)
{
	unsigned char *mac = arena_alloc(arena, EVP_MAX_MD_SIZE);
	unsigned len = 0;

	must(HMAC(EVP_sha256(), MAKER_SECRET, (int)strlen(MAKER_SECRET),
		     (const unsigned char *)text.data, text.len, mac, &len) != NULL,
		"HMAC");
	return slice_make(mac, len);
}

static struct slice sign_with_key(EVP_PKEY *key, struct arena *arena, struct slice text)
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	size_t len = (size_t)EVP_PKEY_get_size(key);
	unsigned char *bytes = arena_alloc(arena, len);

	must(digest && EVP_DigestSignInit(digest, NULL, EVP_sha256(), NULL, key) == 1 &&
			EVP_DigestSign(digest, bytes, &len, (const unsigned char *)text.data,
				text.len) == 1,
		"a text is signed");
	EVP_MD_CTX_free(digest);
	return slice_make(bytes, len);
}

/* Converts a DER signature to two numbers of 32 bytes each. */
static struct slice from_der(struct arena *arena, struct slice der)
{
	const unsigned char *at = (const unsigned char *)der.data;
	ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &at, (long)der.len);
	unsigned char *bytes = arena_alloc(arena, 64);

	must(pair && BN_bn2binpad(ECDSA_SIG_get0_r(pair), bytes, 32) == 32 &&
			BN_bn2binpad(ECDSA_SIG_get0_s(pair), bytes + 32, 32) == 32,
		"a signature is taken apart");
	ECDSA_SIG_free(pair);
	return slice_make(bytes, 64);
}

struct slice token_maker_sign(
	const struct token_maker *maker, struct arena *arena, struct slice text)
{
	struct slice signature;

	if (!maker->key)
		return sign_with_secret(arena, text);
	signature = sign_with_key(maker->key, arena, text);
	return EVP_PKEY_is_a(maker->key, "EC") ? from_der(arena, signature) : signature;
}

struct slice token_maker_make(const struct token_maker *maker, struct arena *arena,
	struct slice header, struct slice claims)
{
	struct buffer token = buffer_make(arena, 1024);
	struct slice signature;

	buffer_add(&token, to_base64url(arena, header));
	buffer_char(&token, '.');
	buffer_add(&token, to_base64url(arena, claims));
	signature = token_maker_sign(maker, arena, buffer_slice(&token));
	buffer_char(&token, '.');
	buffer_add(&token, to_base64url(arena, signature));
	return buffer_slice(&token);
}

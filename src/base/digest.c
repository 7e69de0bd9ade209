#include "base/digest.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <string.h>

static EVP_MD_CTX *begin(const EVP_MD *kind)
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	int ok = digest && EVP_DigestInit_ex(digest, kind, NULL);

	assert(ok);
	return digest;
}

static void add(EVP_MD_CTX *digest, const void *data, size_t len)
{
	int ok = EVP_DigestUpdate(digest, data, len);

	assert(ok);
}

static void end(EVP_MD_CTX *digest, unsigned char *out)
{
	int ok = EVP_DigestFinal_ex(digest, out, NULL);

	assert(ok);
	EVP_MD_CTX_free(digest);
}

void digest_begin(struct digest *digest)
{
	digest->context = begin(EVP_sha256());
}

void digest_add(struct digest *digest, struct slice text)
{
	add(digest->context, text.data, text.len);
}

void digest_end(struct digest *digest, unsigned char out[SHA256_SIZE])
{
	end(digest->context, out);
}

void digest_parts(const struct slice *parts, size_t count, unsigned char out[SHA256_SIZE])
{
	EVP_MD_CTX *digest = begin(EVP_sha256());

	for (size_t i = 0; i < count; i++) {
		uint64_t len = parts[i].len;

		add(digest, &len, sizeof(len));
		add(digest, parts[i].data, parts[i].len);
	}
	end(digest, out);
}

void digest_sha256(struct slice text, unsigned char out[SHA256_SIZE])
{
	EVP_MD_CTX *digest = begin(EVP_sha256());

	add(digest, text.data, text.len);
	end(digest, out);
}

void digest_sha1(struct slice first, struct slice second, unsigned char out[SHA1_SIZE])
{
	EVP_MD_CTX *digest = begin(EVP_sha1());

	add(digest, first.data, first.len);
	add(digest, second.data, second.len);
	end(digest, out);
}

#define BLOCK_SIZE 64

/* Writes one SHA-256 to `out`. It is the hash of `block`, with each byte XORed with `pad`, followed
 * by all `parts`. */
static void hash_padded(const unsigned char block[BLOCK_SIZE], unsigned char pad,
	const struct slice *parts, size_t count, unsigned char out[SHA256_SIZE])
{
	unsigned char padded[BLOCK_SIZE];
	struct digest digest;

	for (size_t i = 0; i < BLOCK_SIZE; i++)
		padded[i] = block[i] ^ pad;
	digest_begin(&digest);
	digest_add(&digest, slice_make((const char *)padded, BLOCK_SIZE));
	for (size_t i = 0; i < count; i++)
		digest_add(&digest, parts[i]);
	digest_end(&digest, out);
	explicit_bzero(padded, sizeof(padded));
}

/* Computes the HMAC of RFC 2104, with SHA-256 as the hash. */
void digest_hmac_sha256(
	struct slice key, const struct slice *parts, size_t count, unsigned char out[SHA256_SIZE])
{
	unsigned char block[BLOCK_SIZE] = {0};
	unsigned char inner[SHA256_SIZE];
	const struct slice inner_part = {(const char *)inner, SHA256_SIZE};

	if (key.len > BLOCK_SIZE)
		digest_sha256(key, block);
	else
		memcpy(block, key.data, key.len);
	hash_padded(block, 0x36, parts, count, inner);
	hash_padded(block, 0x5c, &inner_part, 1, out);
	explicit_bzero(block, sizeof(block));
}

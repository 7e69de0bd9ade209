#include "base/digest.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdint.h>

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

/* SHA-256 and HMAC-SHA256, and SHA-1 for UUIDs of version 5 only. Thread-safe. */
#ifndef QUIPU_BASE_DIGEST_H
#define QUIPU_BASE_DIGEST_H

#include "base/slice.h"

#define SHA256_SIZE 32
#define SHA1_SIZE 20

/* A SHA-256 that is being computed: call digest_begin(), digest_add() for each part, and then
 * digest_end(), which also frees the context. */
struct digest {
	struct evp_md_ctx_st *context;
};

void digest_begin(struct digest *digest);
void digest_add(struct digest *digest, struct slice text);
void digest_end(struct digest *digest, unsigned char out[SHA256_SIZE]);

/* Writes the SHA-256 of a list of parts to `out`. The length of each part is hashed before the
 * part, so different lists never hash the same bytes. */
void digest_parts(const struct slice *parts, size_t count, unsigned char out[SHA256_SIZE]);

/* Writes the SHA-256 of `text` to `out`. */
void digest_sha256(struct slice text, unsigned char out[SHA256_SIZE]);

/* Writes the HMAC-SHA256 of the concatenated parts to `out`. */
void digest_hmac_sha256(
	struct slice key, const struct slice *parts, size_t count, unsigned char out[SHA256_SIZE]);

/* Writes the SHA-1 of the two concatenated parts to `out`. */
void digest_sha1(struct slice first, struct slice second, unsigned char out[SHA1_SIZE]);

#endif

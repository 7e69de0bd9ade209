/*
 * The secrets that sign webhooks, in the format of Standard Webhooks (www.standardwebhooks.com). A
 * file contains one or two secrets, each on a line of its own: whsec_ followed by 24 to 64 bytes in
 * base64. Empty lines and lines that begin with # are ignored. With two secrets, every request
 * carries both signatures, so that receivers can change from one secret to the other at any time.
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_SECRETS_H
#define QUIPU_ADAPTERS_NOTIFIER_WEBHOOK_WEBHOOK_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "base/status.h"

#define WEBHOOK_SECRETS_MAX 2

/* Enough for "v1," and 44 characters per secret, a space between the signatures, and a NUL. */
#define WEBHOOK_SIGNATURES_SIZE (WEBHOOK_SECRETS_MAX * 48)

struct webhook_secrets;

/* Reads the file. Returns NULL if it cannot be used; `why`, of `size` bytes, then says what is
 * wrong and contains no part of a secret. */
QP_MUST_CHECK struct webhook_secrets *webhook_secrets_open(
	const char *path, char *why, size_t size);

/* Reads the file again. If it cannot be used, writes the reason to `why`, keeps using the previous
 * secrets, and returns false. Any thread. */
QP_MUST_CHECK bool webhook_secrets_reload(struct webhook_secrets *secrets, char *why, size_t size);

void webhook_secrets_free(struct webhook_secrets *secrets);

/* A request to sign. */
struct webhook_content {
	struct slice id;
	int64_t timestamp_s;
	struct slice body;
};

/* Writes the value of the header webhook-signature to `out`. Any thread. */
void webhook_secrets_sign(struct webhook_secrets *secrets, const struct webhook_content *content,
	char out[WEBHOOK_SIGNATURES_SIZE]);

#endif

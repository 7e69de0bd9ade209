/* Keeps the secrets that sign webhooks, and reloads them. A reload reads the secrets file into a
 * new struct and then, under the lock, copies the new struct over the current one. Signing holds
 * the lock only while it copies the secrets. */
#include "adapters/notifier/webhook/webhook_secrets.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/text.h"

#define PREFIX "whsec_"
#define SECRET_LEAST 24
#define SECRET_MOST 64
#define FILE_MAX 4096

struct secret {
	char bytes[SECRET_MOST];
	size_t len;
};

struct secret_pair {
	struct secret all[WEBHOOK_SECRETS_MAX];
	size_t count;
};

struct webhook_secrets {
	char *path;
	pthread_mutex_t lock; /* guards the members below */
	struct secret_pair current;
};

/* ---- reading ----------------------------------------------------------------------------- */

/* Parses one line of the secrets file and adds its secret, if it has one, to `pair`. Returns NULL
 * on success, otherwise a text that says what is wrong. */
static const char *read_line(struct arena *arena, struct slice line, struct secret_pair *pair)
{
	struct slice bytes;

	if (line.len == 0 || line.data[0] == '#')
		return NULL;
	if (pair->count == WEBHOOK_SECRETS_MAX)
		return "it has more than two secrets";
	if (line.len < strlen(PREFIX) || memcmp(line.data, PREFIX, strlen(PREFIX)) != 0)
		return "a secret must begin with " PREFIX;
	line = slice_make(line.data + strlen(PREFIX), line.len - strlen(PREFIX));
	if (!text_from_base64(arena, line, &bytes) || bytes.len < SECRET_LEAST ||
		bytes.len > SECRET_MOST)
		return "a secret must be " PREFIX " followed by 24 to 64 bytes in base64";
	memcpy(pair->all[pair->count].bytes, bytes.data, bytes.len);
	pair->all[pair->count++].len = bytes.len;
	return NULL;
}

static const char *read_lines(struct slice text, struct secret_pair *pair)
{
	struct arena arena;
	const char *wrong = NULL;

	arena_init(&arena, FILE_MAX);
	while (text.data && !wrong)
		wrong = read_line(&arena, slice_trim(slice_cut(&text, '\n')), pair);
	arena_release(&arena);
	return !wrong && pair->count == 0 ? "it has no secret" : wrong;
}

static bool read_file(const char *path, struct secret_pair *pair, char *why, size_t size)
{
	char text[FILE_MAX];
	ssize_t len = file_read_start(path, text, sizeof(text));
	const char *wrong;

	*pair = (struct secret_pair){0};
	if (len < 0) {
		snprintf(why, size, "--webhook-secret-file %s cannot be read: %s", path,
			strerror(errno));
		return false;
	}
	if (file_is_anyones(path)) {
		explicit_bzero(text, sizeof(text));
		snprintf(why, size, FILE_IS_ANYONES, path, path);
		return false;
	}
	wrong = (size_t)len == sizeof(text) ? "it is too long"
					    : read_lines(slice_make(text, (size_t)len), pair);
	explicit_bzero(text, sizeof(text));
	if (wrong)
		snprintf(why, size, "--webhook-secret-file %s cannot be used: %s", path, wrong);
	return wrong == NULL;
}

struct webhook_secrets *webhook_secrets_open(const char *path, char *why, size_t size)
{
	struct webhook_secrets *secrets = qp_calloc(1, sizeof(*secrets));

	secrets->path = qp_strdup(path);
	pthread_mutex_init(&secrets->lock, NULL);
	if (read_file(path, &secrets->current, why, size))
		return secrets;
	webhook_secrets_free(secrets);
	return NULL;
}

bool webhook_secrets_reload(struct webhook_secrets *secrets, char *why, size_t size)
{
	struct secret_pair fresh;
	bool ok = read_file(secrets->path, &fresh, why, size);

	if (ok) {
		pthread_mutex_lock(&secrets->lock);
		secrets->current = fresh;
		pthread_mutex_unlock(&secrets->lock);
	}
	explicit_bzero(&fresh, sizeof(fresh));
	return ok;
}

void webhook_secrets_free(struct webhook_secrets *secrets)
{
	explicit_bzero(&secrets->current, sizeof(secrets->current));
	pthread_mutex_destroy(&secrets->lock);
	free(secrets->path);
	free(secrets);
}

/* ---- signing ----------------------------------------------------------------------------- */

static void sign(
	struct buffer *out, const struct secret *secret, const struct webhook_content *content)
{
	unsigned char signature[SHA256_SIZE];
	struct slice parts[3] = {content->id, {0}, content->body};
	char stamp[32];

	snprintf(stamp, sizeof(stamp), ".%lld.", (long long)content->timestamp_s);
	parts[1] = slice_of(stamp);
	digest_hmac_sha256(slice_make(secret->bytes, secret->len), parts, 3, signature);
	buffer_text(out, "v1,");
	buffer_base64(out, slice_make((const char *)signature, sizeof(signature)));
}

void webhook_secrets_sign(struct webhook_secrets *secrets, const struct webhook_content *content,
	char out[WEBHOOK_SIGNATURES_SIZE])
{
	struct secret_pair pair;
	struct arena arena;
	struct buffer text;
	struct slice written;

	pthread_mutex_lock(&secrets->lock);
	pair = secrets->current;
	pthread_mutex_unlock(&secrets->lock);
	arena_init(&arena, 512);
	text = buffer_make(&arena, WEBHOOK_SIGNATURES_SIZE);
	for (size_t i = 0; i < pair.count; i++) {
		if (i > 0)
			buffer_char(&text, ' ');
		sign(&text, &pair.all[i], content);
	}
	written = buffer_slice(&text);
	memcpy(out, written.data, written.len);
	out[written.len] = '\0';
	arena_release(&arena);
	explicit_bzero(&pair, sizeof(pair));
}

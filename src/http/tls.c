/*
 * OpenSSL's memory BIOs keep a buffer of the size of the largest record for as long as they exist.
 * So sessions use our own kind of BIO ("pipe"). A pipe reads straight from the caller's bytes, and
 * the caller takes the pipe's output after each call, so an idle session has no buffer.
 *
 * A reload creates a new SSL_CTX and swaps it under a lock. OpenSSL counts references, so each
 * session keeps the SSL_CTX that it started with.
 *
 * OpenSSL's errors are in a queue per thread, and tokens.c uses OpenSSL on the same threads. So the
 * queue is cleared before each call that may fail.
 */
#include "http/tls.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics.h"

/* For TLS 1.2: only ciphers with forward secrecy and authenticated encryption. All ciphers of TLS
 * 1.3 have both properties. */
#define CIPHERS_1_2 "ECDHE+AESGCM:ECDHE+CHACHA20"

enum handshake {
	HANDSHAKE_OK,
	HANDSHAKE_FAILED,
	HANDSHAKE_PLAIN,
	HANDSHAKE_TIMEOUT,
	HANDSHAKE_GONE,
	HANDSHAKE_COUNT
};

static const char *const handshake_names[HANDSHAKE_COUNT] = {
	"ok", "failed", "plain_http", "timeout", "gone"};

struct tls_context {
	const char *certificate_file;
	const char *key_file;
	BIO_METHOD *pipe;     /* the kind of BIO that each session uses; see the top of this file */
	pthread_mutex_t lock; /* guards the next two members */
	SSL_CTX *current;     /* for new sessions; this struct holds one reference to it */
	int64_t expires_s;
	struct tally handshakes[HANDSHAKE_COUNT];
};

struct tls_session {
	struct tls_context *context;
	SSL *ssl;
	enum tls_state state;
	struct slice input; /* bytes to decrypt; empty except during tls_session_read() */
	char *output;       /* the output that the caller has not taken yet, or NULL */
	size_t output_len;
	size_t output_size;
};

/* ---- the certificate --------------------------------------------------------------------- */

/* Returns OpenSSL's text for the last failure of this thread. */
static const char *last_error(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());

	return reason ? reason : "unknown error";
}

static bool can_read(const char *what, const char *file, char *why)
{
	if (access(file, R_OK) != 0)
		snprintf(why, TLS_WHY_SIZE, "cannot read the %s %s: %s", what, file,
			strerror(errno));
	else if (file_is_anyones(file))
		snprintf(why, TLS_WHY_SIZE, FILE_IS_ANYONES, file, file);
	else
		return true;
	return false;
}

static bool use_certificate(SSL_CTX *ctx, const char *file, char *why)
{
	if (!can_read("certificate", file, why))
		return false;
	if (SSL_CTX_use_certificate_chain_file(ctx, file) == 1)
		return true;
	snprintf(why, TLS_WHY_SIZE,
		"%s cannot be used as a certificate: %s (the file must be PEM and begin with the "
		"server's own certificate)",
		file, last_error());
	return false;
}

/* OpenSSL calls this to get the passphrase of a private key. Sets `*was_asked` to true and refuses.
 * Without this function, OpenSSL would prompt on the terminal. */
static int refuse_to_ask(char *password, int size, int writing, void *was_asked)
{
	(void)password;
	(void)size;
	(void)writing;
	*(bool *)was_asked = true;
	return -1;
}

static EVP_PKEY *read_key(const char *file, char *why)
{
	bool was_asked = false;
	BIO *in = BIO_new_file(file, "r");
	EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, refuse_to_ask, &was_asked) : NULL;

	BIO_free(in);
	if (!key && was_asked)
		snprintf(why, TLS_WHY_SIZE,
			"the private key %s is encrypted, and the server cannot ask for a "
			"passphrase; store the key without a passphrase, in a file that only the "
			"service can read",
			file);
	else if (!key)
		snprintf(why, TLS_WHY_SIZE,
			"%s cannot be used as a private key: %s (it must be PEM)", file,
			last_error());
	return key;
}

static bool use_key(SSL_CTX *ctx, const struct tls_context *context, char *why)
{
	EVP_PKEY *key;
	bool fits;

	if (!can_read("private key", context->key_file, why))
		return false;
	key = read_key(context->key_file, why);
	if (!key)
		return false;
	fits = X509_check_private_key(SSL_CTX_get0_certificate(ctx), key) == 1 &&
	       SSL_CTX_use_PrivateKey(ctx, key) == 1;
	EVP_PKEY_free(key);
	if (!fits)
		snprintf(why, TLS_WHY_SIZE, "the private key %s does not match the certificate %s",
			context->key_file, context->certificate_file);
	return fits;
}

/* Returns the time at which the certificate expires, in seconds since 1970, or INT64_MAX if that
 * time cannot be read. */
static int64_t end_of_certificate(const X509 *certificate)
{
	struct tm end;

	if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1)
		return INT64_MAX;
	return timegm(&end);
}

/* Returns the earliest time at which any certificate in the chain expires. */
static int64_t end_of_chain(SSL_CTX *ctx)
{
	int64_t first_s = end_of_certificate(SSL_CTX_get0_certificate(ctx));
	STACK_OF(X509) *authorities = NULL;

	SSL_CTX_get0_chain_certs(ctx, &authorities);
	for (int i = 0; i < sk_X509_num(authorities); i++) {
		int64_t end_s = end_of_certificate(sk_X509_value(authorities, i));

		if (end_s < first_s)
			first_s = end_s;
	}
	return first_s;
}

/* ---- the context ------------------------------------------------------------------------- */

/* OpenSSL calls this if the client offers protocols (ALPN). Fails the handshake if the server
 * speaks none of them. */
static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *chosen_len,
	const unsigned char *offered, unsigned offered_len, void *context)
{
	static const unsigned char ours[] = "\x02h2\x08http/1.1"; /* in order of preference */
	unsigned char *found;

	(void)ssl;
	(void)context;
	if (SSL_select_next_proto(&found, chosen_len, ours, sizeof(ours) - 1, offered,
		    offered_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*chosen = found;
	return SSL_TLSEXT_ERR_OK;
}

static bool set_up(SSL_CTX *ctx)
{
	SSL_CTX_set_options(ctx,
		SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	/* Clients resume with a ticket, so the server need not keep their TLS sessions. */
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
	       SSL_CTX_set_cipher_list(ctx, CIPHERS_1_2) == 1;
}

/* Creates an SSL_CTX from the files. On failure returns NULL and writes the reason to `why`. */
static SSL_CTX *read_files(const struct tls_context *context, char *why)
{
	SSL_CTX *ctx;

	ERR_clear_error();
	ctx = SSL_CTX_new(TLS_server_method());
	if (!ctx || !set_up(ctx))
		snprintf(why, TLS_WHY_SIZE, "OpenSSL cannot be used: %s", last_error());
	else if (use_certificate(ctx, context->certificate_file, why) && use_key(ctx, context, why))
		return ctx;
	SSL_CTX_free(ctx);
	return NULL;
}

static int on_pipe_read(BIO *bio, char *bytes, int size)
{
	struct tls_session *session = BIO_get_data(bio);
	size_t len = session->input.len < (size_t)size ? session->input.len : (size_t)size;

	BIO_clear_retry_flags(bio);
	if (len == 0) {
		BIO_set_retry_read(bio);
		return -1;
	}
	memcpy(bytes, session->input.data, len);
	session->input = slice_make(session->input.data + len, session->input.len - len);
	return (int)len;
}

static void grow_output(struct tls_session *session, size_t needed)
{
	size_t size = needed > 2 * session->output_size ? needed : 2 * session->output_size;
	char *output = qp_malloc(size);

	if (session->output_len > 0)
		memcpy(output, session->output, session->output_len);
	free(session->output);
	session->output = output;
	session->output_size = size;
}

static int on_pipe_write(BIO *bio, const char *bytes, int len)
{
	struct tls_session *session = BIO_get_data(bio);

	BIO_clear_retry_flags(bio);
	if (session->output_len + (size_t)len > session->output_size)
		grow_output(session, session->output_len + (size_t)len);
	memcpy(session->output + session->output_len, bytes, (size_t)len);
	session->output_len += (size_t)len;
	return len;
}

static long on_pipe_control(BIO *bio, int command, long number, void *pointer)
{
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_pipe(void)
{
	BIO_METHOD *pipe = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quipu");

	assert(pipe);
	BIO_meth_set_read(pipe, on_pipe_read);
	BIO_meth_set_write(pipe, on_pipe_write);
	BIO_meth_set_ctrl(pipe, on_pipe_control);
	return pipe;
}

struct tls_context *tls_context_new(const char *certificate_file, const char *key_file, char *why)
{
	struct tls_context *context = qp_calloc(1, sizeof(*context));

	context->certificate_file = certificate_file;
	context->key_file = key_file;
	context->pipe = make_pipe();
	pthread_mutex_init(&context->lock, NULL);
	if (tls_context_reload(context, why))
		return context;
	tls_context_free(context);
	return NULL;
}

void tls_context_free(struct tls_context *context)
{
	SSL_CTX_free(context->current);
	BIO_meth_free(context->pipe);
	pthread_mutex_destroy(&context->lock);
	free(context);
}

bool tls_context_reload(struct tls_context *context, char *why)
{
	SSL_CTX *old, *fresh = read_files(context, why);

	if (!fresh)
		return false;
	pthread_mutex_lock(&context->lock);
	old = context->current;
	context->current = fresh;
	context->expires_s = end_of_chain(fresh);
	pthread_mutex_unlock(&context->lock);
	SSL_CTX_free(old);
	return true;
}

int64_t tls_context_expires_s(struct tls_context *context)
{
	int64_t expires_s;

	pthread_mutex_lock(&context->lock);
	expires_s = context->expires_s;
	pthread_mutex_unlock(&context->lock);
	return expires_s;
}

void tls_collect(void *thing, struct buffer *page)
{
	struct tls_context *context = thing;

	metrics_family(page, "quipu_tls_handshakes_total", "counter",
		"TLS handshakes that clients began, by result.");
	for (size_t i = 0; i < HANDSHAKE_COUNT; i++) {
		char label[64];

		snprintf(label, sizeof(label), "result=\"%s\"", handshake_names[i]);
		metrics_sample(page, "quipu_tls_handshakes_total", label,
			tally_read(&context->handshakes[i]));
	}
	metrics_family(page, "quipu_tls_certificate_expires_seconds", "gauge",
		"When the certificate in use expires, in seconds since 1970.");
	metrics_sample(
		page, "quipu_tls_certificate_expires_seconds", "", tls_context_expires_s(context));
}

/* ---- sessions ---------------------------------------------------------------------------- */

static SSL *make_ssl(struct tls_context *context)
{
	SSL_CTX *current;
	SSL *ssl;

	ERR_clear_error();
	pthread_mutex_lock(&context->lock);
	current = context->current;
	SSL_CTX_up_ref(current);
	pthread_mutex_unlock(&context->lock);
	ssl = SSL_new(current);
	SSL_CTX_free(current);
	return ssl;
}

struct tls_session *tls_session_new(struct tls_context *context)
{
	struct tls_session *session;
	SSL *ssl = make_ssl(context);
	BIO *bio = ssl ? BIO_new(context->pipe) : NULL;

	if (!bio) {
		SSL_free(ssl);
		return NULL;
	}
	session = qp_calloc(1, sizeof(*session));
	session->context = context;
	session->ssl = ssl;
	BIO_set_data(bio, session);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	SSL_set_accept_state(ssl);
	return session;
}

static void end_handshake(
	struct tls_session *session, enum tls_state state, enum handshake handshake)
{
	assert(session->state == TLS_NEW || session->state == TLS_HELLO);
	session->state = state;
	tally_add(&session->context->handshakes[handshake], 1);
}

void tls_session_free(struct tls_session *session)
{
	if (session->state == TLS_HELLO)
		end_handshake(session, TLS_BROKEN, HANDSHAKE_GONE);
	SSL_free(session->ssl);
	free(session->output);
	free(session);
}

enum tls_state tls_session_state(const struct tls_session *session)
{
	return session->state;
}

bool tls_session_chose_http2(const struct tls_session *session)
{
	const unsigned char *chosen;
	unsigned len;

	SSL_get0_alpn_selected(session->ssl, &chosen, &len);
	return len == 2 && memcmp(chosen, "h2", 2) == 0;
}

/* A TLS record never begins with a letter, but every standard method of HTTP begins with a capital
 * letter. */
static bool looks_like_http(struct slice bytes)
{
	return bytes.data[0] >= 'A' && bytes.data[0] <= 'Z';
}

static void begin_handshake(struct tls_session *session, struct slice bytes)
{
	if (!looks_like_http(bytes)) {
		session->state = TLS_HELLO;
		return;
	}
	log_line(LOG_DEBUG, "tls", "a client sent HTTP without TLS");
	end_handshake(session, TLS_PLAIN, HANDSHAKE_PLAIN);
}

static void note_handshake(struct tls_session *session)
{
	if (session->state == TLS_HELLO && SSL_is_init_finished(session->ssl))
		end_handshake(session, TLS_OPEN, HANDSHAKE_OK);
}

static void note_failure(struct tls_session *session)
{
	log_line(LOG_DEBUG, "tls", "%s: %s",
		session->state == TLS_HELLO ? "a handshake failed" : "a session broke",
		last_error());
	if (session->state == TLS_HELLO)
		end_handshake(session, TLS_BROKEN, HANDSHAKE_FAILED);
	else
		session->state = TLS_BROKEN;
}

/* Updates the state after SSL_read_ex() has returned no data. */
static void note_pause(struct tls_session *session, int result)
{
	switch (SSL_get_error(session->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		assert(session->input.len == 0);
		break;
	case SSL_ERROR_ZERO_RETURN:
		session->state = TLS_ENDED;
		break;
	default:
		note_failure(session);
	}
}

size_t tls_session_read(struct tls_session *session, struct slice bytes, char *plain)
{
	size_t room = bytes.len + TLS_RECORD_MAX, len = 0, more;
	int result;

	assert(bytes.len > 0);
	if (session->state == TLS_NEW)
		begin_handshake(session, bytes);
	if (session->state != TLS_HELLO && session->state != TLS_OPEN)
		return 0;
	session->input = bytes;
	do {
		ERR_clear_error();
		result = SSL_read_ex(session->ssl, plain + len, room - len, &more);
		note_handshake(session);
		if (result == 1)
			len += more;
	} while (result == 1);
	note_pause(session, result);
	session->input = (struct slice){0};
	return len;
}

bool tls_session_write(struct tls_session *session, struct slice plain)
{
	size_t written;

	if (plain.len == 0)
		return true;
	if (session->state != TLS_OPEN && session->state != TLS_ENDED)
		return false;
	ERR_clear_error();
	if (SSL_write_ex(session->ssl, plain.data, plain.len, &written) != 1) {
		note_failure(session);
		return false;
	}
	assert(written == plain.len);
	return true;
}

void tls_session_end(struct tls_session *session)
{
	bool can_write = session->state == TLS_OPEN || session->state == TLS_ENDED;

	if (!can_write || (SSL_get_shutdown(session->ssl) & SSL_SENT_SHUTDOWN))
		return;
	ERR_clear_error();
	SSL_shutdown(session->ssl);
}

void tls_session_time_out(struct tls_session *session)
{
	log_line(LOG_DEBUG, "tls", "a handshake took too long");
	end_handshake(session, TLS_BROKEN, HANDSHAKE_TIMEOUT);
}

char *tls_session_take_output(struct tls_session *session, size_t *len)
{
	char *output = session->output;

	*len = session->output_len;
	session->output = NULL;
	session->output_len = session->output_size = 0;
	return output;
}

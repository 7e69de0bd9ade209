/*
 * TLS for the listener: the only place that sees OpenSSL's protocol. A context is the certificate
 * and the key, a session is one connection. A session does no input or output by itself: bytes of
 * the socket go in and plain text comes out, answers go in and bytes for the socket come out, so
 * that connection.c stays the one place that reads and writes.
 *
 *   state   event                          next
 *   new     bytes that look like HTTP      plain    the client speaks without TLS
 *   new     other bytes                    hello
 *   hello   handshake done                 open     plain text in both directions from here on
 *   hello   it cannot succeed              broken   an alert is among the output
 *   open    the client says it has ended   ended    answers can still be written
 *   open    a record that is not right     broken
 *
 * OpenSSL's own memory BIOs keep the size of the largest record for as long as they live. So a
 * session has a BIO of its own, which reads from where the caller's bytes lie, and whose output is
 * taken away after each call; an idle session has no buffer at all.
 */
#ifndef QUIPU_HTTP_TLS_H
#define QUIPU_HTTP_TLS_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

#define TLS_WHY_SIZE 512

struct tls_context;

/*
 * Reads the certificate (PEM, followed by those of its authorities) and its private key (PEM, not
 * encrypted). The names of the files outlive it. NULL: `why` (TLS_WHY_SIZE). Main thread, as the
 * next three.
 */
QP_MUST_CHECK struct tls_context *tls_context_new(
	const char *certificate_file, const char *key_file, char *why);

/* When all sessions are free. */
void tls_context_free(struct tls_context *context);

/*
 * Reads the files again. Sessions made from now on have the new certificate; those that are there
 * go on with theirs. false: `why` (TLS_WHY_SIZE), and what was read before stays.
 */
QP_MUST_CHECK bool tls_context_reload(struct tls_context *context, char *why);

/* When the certificate, or the first of its authorities', ends, in seconds since 1970. */
int64_t tls_context_expires_s(struct tls_context *context);

/* A metrics collector (context: the tls_context). Any thread. */
void tls_collect(void *context, struct buffer *page);

enum tls_state { TLS_NEW, TLS_HELLO, TLS_OPEN, TLS_ENDED, TLS_BROKEN, TLS_PLAIN };

struct tls_session;

/* A session belongs to one thread at a time; several may use one context. NULL: no memory. */
QP_MUST_CHECK struct tls_session *tls_session_new(struct tls_context *context);

/* A handshake that is still under way is counted as given up by the client. */
void tls_session_free(struct tls_session *session);

enum tls_state tls_session_state(const struct tls_session *session);

/* What one call can give more than it is given: the rest of a record that began before. */
#define TLS_RECORD_MAX (16 * 1024)

/*
 * Takes all of `bytes`, which came from the socket, and writes what they say into `plain`, which
 * has room for bytes.len + TLS_RECORD_MAX. Returns the length of that, and may change the state.
 * There may be output afterwards.
 */
size_t tls_session_read(struct tls_session *session, struct slice bytes, char *plain);

/* Encrypts `plain` into the output. false: the session is broken. */
QP_MUST_CHECK bool tls_session_write(struct tls_session *session, struct slice plain);

/* Says that we write no more (close_notify), if it can be said and was not yet. */
void tls_session_end(struct tls_session *session);

/* The handshake took too long: it is broken. */
void tls_session_time_out(struct tls_session *session);

/* Bytes for the socket, which the caller frees. NULL: there are none. */
char *tls_session_take_output(struct tls_session *session, size_t *len);

#endif

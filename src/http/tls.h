/*
 * Encrypts output to clients and decrypts their input; no other file of http/ uses OpenSSL. A
 * context is the server's certificate and its private key; a session is the TLS of one connection.
 * A session does no I/O itself; only the connection reads and writes the socket. Bytes from the
 * socket go into a session and plain text comes out; answers go in and bytes for the socket come
 * out.
 *
 *   state   event                          next
 *   new     bytes that look like HTTP      plain    the client does not use TLS
 *   new     other bytes                    hello
 *   hello   the handshake is done          open     plain text can go in both directions
 *   hello   the handshake fails            broken   the output ends with an alert
 *   open    close_notify from the client   ended    answers can still be written
 *   open    an invalid record              broken
 */
#ifndef QUIPU_HTTP_TLS_H
#define QUIPU_HTTP_TLS_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

#define TLS_WHY_SIZE 512

struct tls_context;

/*
 * Reads the certificate (PEM, followed by the certificates of its authorities) and its private key
 * (PEM, not encrypted); blocks. The file names must outlive the context. On failure returns NULL
 * and writes the reason to `why` (TLS_WHY_SIZE bytes). Main thread only, like the next two
 * functions.
 */
QP_MUST_CHECK struct tls_context *tls_context_new(
	const char *certificate_file, const char *key_file, char *why);

/* All sessions must have been freed. */
void tls_context_free(struct tls_context *context);

/*
 * Reads the files again; blocks. New sessions use the new certificate, existing sessions keep
 * theirs. On failure returns false, writes the reason to `why` (TLS_WHY_SIZE bytes) and keeps the
 * old certificate.
 */
QP_MUST_CHECK bool tls_context_reload(struct tls_context *context, char *why);

/* Returns the earliest time at which any certificate in the chain expires, in seconds since 1970.
 * Thread-safe. */
int64_t tls_context_expires_s(struct tls_context *context);

/* A metrics collector (context: the tls_context). Thread-safe. */
void tls_collect(void *context, struct buffer *page);

enum tls_state { TLS_NEW, TLS_HELLO, TLS_OPEN, TLS_ENDED, TLS_BROKEN, TLS_PLAIN };

struct tls_session;

/* Creates a session. Returns NULL if OpenSSL runs out of memory. Thread-safe; a session belongs to
 * one thread at a time. */
QP_MUST_CHECK struct tls_session *tls_session_new(struct tls_context *context);

/* Frees the session. If the handshake has begun but is not done, counts the handshake as abandoned
 * by the client. */
void tls_session_free(struct tls_session *session);

enum tls_state tls_session_state(const struct tls_session *session);

/* Returns whether client and server have agreed on HTTP/2. */
bool tls_session_chose_http2(const struct tls_session *session);

/* The plain text that one tls_session_read() returns can exceed its input by this many bytes,
 * because the call may complete a record that began in earlier calls. */
#define TLS_RECORD_MAX (16 * 1024)

/*
 * Decrypts all of `bytes`, which came from the socket, into `plain`, which must have room for
 * bytes.len + TLS_RECORD_MAX bytes. Returns the length of the plain text, and may change the
 * session's state. Afterwards there may be output to send; see tls_session_take_output().
 */
size_t tls_session_read(struct tls_session *session, struct slice bytes, char *plain);

/* Encrypts `plain` into the output. Returns false if the session is broken. */
QP_MUST_CHECK bool tls_session_write(struct tls_session *session, struct slice plain);

/* If the state is TLS_OPEN or TLS_ENDED, adds the server's close_notify to the output, unless an
 * earlier call has added it. Has no effect in any other state. */
void tls_session_end(struct tls_session *session);

/* Gives up a handshake that took too long: the session becomes broken. */
void tls_session_time_out(struct tls_session *session);

/* Returns the bytes that must be sent to the socket, and sets `*len` to their number. The caller
 * frees the bytes. Returns NULL if there are no bytes to send. */
char *tls_session_take_output(struct tls_session *session, size_t *len);

#endif

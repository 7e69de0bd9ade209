/*
 * Helpers for tests of TLS: certificates in files, and OpenSSL's own client, which talks to a
 * session in memory, a chosen number of bytes at a time.
 */
#ifndef QUIPU_TESTS_TLS_FIXTURE_H
#define QUIPU_TESTS_TLS_FIXTURE_H

#include <openssl/ssl.h>

#include "http/tls.h"

/* Create and remove a folder that lasts as long as the group of tests. */
void tls_fixture_open(void);
void tls_fixture_close(void);

/* Returns the path of a file in that folder. Static; valid for eight further calls. */
const char *tls_fixture_file(const char *name);

/* Writes NAME.pem and NAME.key: a self-signed certificate that is valid for `days`. */
void tls_fixture_make_certificate(const char *name, int days);

/* Writes NAME.key again, encrypted. */
void tls_fixture_encrypt_key(const char *name);

/* Write a file with this text, and one that joins two others. */
void tls_fixture_write(const char *name, const char *text);
void tls_fixture_join(const char *name, const char *first, const char *second);

struct talk {
	struct tls_session *session;
	SSL *client;
	size_t step;             /* how many bytes reach the session at a time */
	struct arena arena;      /* for the two buffers below */
	struct buffer at_server; /* plain text that the session has produced */
	struct buffer at_client;
};

/* Connects a client of at most this version (0 for any) to a new session. */
void talk_begin(struct talk *talk, struct tls_context *context, int version, size_t step);
void talk_end(struct talk *talk);

/* Carries bytes in both directions until neither side has any left. */
void talk_carry(struct talk *talk);

/* Completes the handshake and returns the session's state. */
enum tls_state talk_shake_hands(struct talk *talk);

/* Send plain text from one side, and carry it to the other. */
void talk_say(struct talk *talk, struct slice plain);
void talk_answer(struct talk *talk, struct slice plain);

/* Returns the common name of the certificate that the client has received. */
const char *talk_certificate(const struct talk *talk);

/* Feeds the session bytes that do not come from the client. */
void talk_inject(struct talk *talk, const void *bytes, size_t len);

#endif

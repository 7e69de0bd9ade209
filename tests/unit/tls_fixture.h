/*
 * What tests of TLS need: certificates in files, and OpenSSL's own client, which speaks to a
 * session in memory, so many bytes at a time.
 */
#ifndef QUIPU_TESTS_TLS_FIXTURE_H
#define QUIPU_TESTS_TLS_FIXTURE_H

#include <openssl/ssl.h>

#include "http/tls.h"

/* A folder that lasts as long as the group of tests. */
void tls_fixture_open(void);
void tls_fixture_close(void);

/* The path of a file in it; static, good until eight more are asked for. */
const char *tls_fixture_file(const char *name);

/* Writes NAME.pem and NAME.key: a certificate that signs itself and is good for `days`. */
void tls_fixture_make_certificate(const char *name, int days);

/* Writes NAME.key again, encrypted. */
void tls_fixture_encrypt_key(const char *name);

/* A file of this text, and one that is two others joined. */
void tls_fixture_write(const char *name, const char *text);
void tls_fixture_join(const char *name, const char *first, const char *second);

struct talk {
	struct tls_session *session;
	SSL *client;
	size_t step;             /* bytes that reach the session at a time */
	struct arena arena;      /* of the two below */
	struct buffer at_server; /* plain text that came out of the session */
	struct buffer at_client;
};

/* A client of at most this version (0: any) that speaks to a new session. */
void talk_begin(struct talk *talk, struct tls_context *context, int version, size_t step);
void talk_end(struct talk *talk);

/* Carries bytes both ways until nobody has any left. */
void talk_carry(struct talk *talk);

/* The handshake; the session's state afterwards. */
enum tls_state talk_shake_hands(struct talk *talk);

/* Says something, and carries it. */
void talk_say(struct talk *talk, struct slice plain);
void talk_answer(struct talk *talk, struct slice plain);

/* The common name of the certificate that the client has seen. */
const char *talk_certificate(const struct talk *talk);

/* Bytes that did not come from the client. */
void talk_inject(struct talk *talk, const void *bytes, size_t len);

#endif

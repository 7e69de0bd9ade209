/*
 * The certificates and the client of tls_fixture.h. The client is OpenSSL's own, on memory BIOs;
 * bytes are carried between it and the session in steps of a chosen size, so that records arrive
 * cut at any place.
 */
#include "tls_fixture.h"

#include <assert.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/quipu-tls-XXXXXX";

void tls_fixture_open(void)
{
	char *made = mkdtemp(folder);

	assert(made);
	(void)made;
}

void tls_fixture_close(void)
{
	char command[128];
	int failed;

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	failed = system(command);
	assert(!failed);
	(void)failed;
}

const char *tls_fixture_file(const char *name)
{
	static char paths[8][128];
	static size_t next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static FILE *open_file(const char *name, const char *ending)
{
	char whole[64];
	FILE *file;

	snprintf(whole, sizeof(whole), "%s%s", name, ending);
	file = fopen(tls_fixture_file(whole), "we");
	assert(file);
	return file;
}

static X509 *make_certificate(const char *name, int days, EVP_PKEY *key)
{
	X509 *certificate = X509_new();
	X509_NAME *subject = X509_get_subject_name(certificate);

	X509_set_version(certificate, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 86400L * days);
	X509_NAME_add_entry_by_txt(
		subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(certificate, subject);
	X509_set_pubkey(certificate, key);
	X509_sign(certificate, key, EVP_sha256());
	return certificate;
}

void tls_fixture_make_certificate(const char *name, int days)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = make_certificate(name, days, key);
	FILE *file = open_file(name, ".pem");

	PEM_write_X509(file, certificate);
	fclose(file);
	file = open_file(name, ".key");
	PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
	fclose(file);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

void tls_fixture_encrypt_key(const char *name)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	FILE *file = open_file(name, ".key");

	PEM_write_PKCS8PrivateKey(file, key, EVP_aes_128_cbc(), "secret", 6, NULL, NULL);
	fclose(file);
	EVP_PKEY_free(key);
}

void tls_fixture_write(const char *name, const char *text)
{
	FILE *file = open_file(name, "");

	fputs(text, file);
	fclose(file);
}

void tls_fixture_join(const char *name, const char *first, const char *second)
{
	const char *parts[] = {first, second};
	FILE *file = open_file(name, "");

	for (size_t i = 0; i < 2; i++) {
		FILE *in = fopen(tls_fixture_file(parts[i]), "re");
		int c;

		assert(in);
		while ((c = getc(in)) != EOF)
			putc(c, file);
		fclose(in);
	}
	fclose(file);
}

/* ---- talking ----------------------------------------------------------------------------- */

void talk_begin(struct talk *talk, struct tls_context *context, int version, size_t step)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	assert(ctx);
	memset(talk, 0, sizeof(*talk));
	if (version) {
		/* so that the client can also use what the server has to refuse */
		SSL_CTX_set_security_level(ctx, 0);
		SSL_CTX_set_min_proto_version(ctx, version);
		SSL_CTX_set_max_proto_version(ctx, version);
	}
	talk->client = SSL_new(ctx);
	SSL_CTX_free(ctx);
	SSL_set_bio(talk->client, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	SSL_set_connect_state(talk->client);
	talk->session = tls_session_new(context);
	assert(talk->session);
	talk->step = step;
	arena_init(&talk->arena, 4096);
	talk->at_server = buffer_make(&talk->arena, 1024);
	talk->at_client = buffer_make(&talk->arena, 1024);
}

void talk_end(struct talk *talk)
{
	SSL_free(talk->client);
	tls_session_free(talk->session);
	arena_release(&talk->arena);
}

/* Allocates exactly as much memory as tls_session_read() may use, so that ASan notices one byte
 * more. */
void talk_inject(struct talk *talk, const void *bytes, size_t len)
{
	char *plain = malloc(len + TLS_RECORD_MAX);
	size_t got;

	assert(plain);
	got = tls_session_read(talk->session, slice_make(bytes, len), plain);
	buffer_bytes(&talk->at_server, plain, got);
	free(plain);
}

static bool carry_to_server(struct talk *talk)
{
	BIO *from = SSL_get_wbio(talk->client);
	char *bytes = malloc(talk->step);
	bool moved = false;
	int len;

	assert(bytes);
	while ((len = BIO_read(from, bytes, (int)talk->step)) > 0) {
		talk_inject(talk, bytes, (size_t)len);
		moved = true;
	}
	free(bytes);
	return moved;
}

static bool carry_to_client(struct talk *talk)
{
	char plain[4096];
	size_t len;
	char *bytes = tls_session_take_output(talk->session, &len);
	int got;

	if (bytes)
		BIO_write(SSL_get_rbio(talk->client), bytes, (int)len);
	free(bytes);
	while ((got = SSL_read(talk->client, plain, sizeof(plain))) > 0)
		buffer_bytes(&talk->at_client, plain, (size_t)got);
	return bytes != NULL;
}

void talk_carry(struct talk *talk)
{
	bool moved;

	do {
		moved = carry_to_server(talk);
		moved |= carry_to_client(talk);
	} while (moved);
}

enum tls_state talk_shake_hands(struct talk *talk)
{
	SSL_do_handshake(talk->client);
	talk_carry(talk);
	return tls_session_state(talk->session);
}

void talk_say(struct talk *talk, struct slice plain)
{
	int written = SSL_write(talk->client, plain.data, (int)plain.len);

	assert(written == (int)plain.len);
	(void)written;
	talk_carry(talk);
}

void talk_answer(struct talk *talk, struct slice plain)
{
	bool ok = tls_session_write(talk->session, plain);

	assert(ok);
	(void)ok;
	talk_carry(talk);
}

const char *talk_certificate(const struct talk *talk)
{
	static char name[64];
	X509 *certificate = SSL_get0_peer_certificate(talk->client);

	name[0] = '\0';
	if (certificate)
		X509_NAME_get_text_by_NID(
			X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
	return name;
}

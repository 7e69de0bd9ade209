/* NATS over TLS, with a certificate of the test's own. */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/bus/nats/nats_bus.h"
#include "base/log.h"
#include "captured_log.h"
#include "nats_fixture.h"
#include "waiting.h"

#define SKIPPED 77

static const struct bus_channel channels[] = {{.name = "events", .partitions = 1}};

static struct {
	char folder[40];
	char cert[64];
	char key[64];
} files;

/* ---- a certificate ----------------------------------------------------------------------- */

static void add_names(X509 *certificate)
{
	X509_NAME *name = X509_get_subject_name(certificate);
	X509_EXTENSION *names =
		X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:localhost");

	assert_int_equal(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
				 (const unsigned char *)"localhost", -1, -1, 0),
		1);
	assert_int_equal(X509_set_issuer_name(certificate, name), 1);
	assert_non_null(names);
	assert_int_equal(X509_add_ext(certificate, names, -1), 1);
	X509_EXTENSION_free(names);
}

static X509 *make_certificate(EVP_PKEY *key)
{
	X509 *certificate = X509_new();

	assert_non_null(certificate);
	X509_set_version(certificate, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	add_names(certificate);
	assert_int_equal(X509_set_pubkey(certificate, key), 1);
	assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
	return certificate;
}

static void write_files(void)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = make_certificate(key);
	FILE *file;

	snprintf(files.folder, sizeof(files.folder), "/tmp/quipu-nats-tls-XXXXXX");
	assert_non_null(mkdtemp(files.folder));
	snprintf(files.cert, sizeof(files.cert), "%s/cert.pem", files.folder);
	snprintf(files.key, sizeof(files.key), "%s/key.pem", files.folder);
	file = fopen(files.cert, "w");
	assert_int_equal(PEM_write_X509(file, certificate), 1);
	fclose(file);
	file = fopen(files.key, "w");
	assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
	fclose(file);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

/* ---- a server ---------------------------------------------------------------------------- */

static void start_server(bool verifies)
{
	char lines[256];

	snprintf(lines, sizeof(lines),
		"tls { cert_file: \"%s\", key_file: \"%s\", ca_file: \"%s\", verify: %s }\n",
		files.cert, files.key, files.cert, verifies ? "true" : "false");
	nats_server_configure(lines);
	nats_server_start();
}

static int setup(void **state)
{
	(void)state;
	log_configure(getenv("QUIPU_CONTRACT_DEBUG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	write_files();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	nats_server_remove();
	unlink(files.cert);
	unlink(files.key);
	rmdir(files.folder);
	return 0;
}

static struct bus *start_bus(const char *scheme, const char *host, const char *options)
{
	char url[256];
	char why[256] = "";
	struct bus *bus;

	snprintf(url, sizeof(url), "%s://%s:%d?%s", scheme, host, nats_server_port(), options);
	bus = nats_bus_new("tls", url, channels, 1);
	if (!bus->ops->start(bus, why, sizeof(why)))
		fail_msg("%s", why);
	return bus;
}

static void assert_works(const char *scheme, const char *host, const char *options)
{
	struct bus *bus = start_bus(scheme, host, options);
	struct producer *producer = bus->ops->open_producer(bus);
	struct bus_message message = {.channel = slice_of("events"), .value = slice_of("value")};

	WAIT_UNTIL(bus->ops->is_up(bus));
	assert_int_equal(producer->ops->publish(producer, &message, 1, in_ms(HANG_MS)), STATUS_OK);
	assert_int_equal(message.fate, BUS_CONFIRMED);
	producer->ops->close(producer);
	bus->ops->free(bus);
}

static void assert_does_not_work(const char *scheme, const char *host, const char *options)
{
	struct bus *bus;

	bus_fixture_log_begin();
	bus = start_bus(scheme, host, options);
	WAIT_UNTIL(captured_log_count("is unavailable") > 0);
	assert_false(bus->ops->is_up(bus));
	bus->ops->free(bus);
	bus_fixture_log_end();
}

static void a_server_must_be_who_it_says(void **state)
{
	char options[160];

	(void)state;
	start_server(false);
	snprintf(options, sizeof(options), "tls-ca=%s", files.cert);
	assert_works("tls", "localhost", options);
	assert_does_not_work("tls", "127.0.0.1", options); /* another name */
	assert_does_not_work("tls", "localhost", "");      /* nobody vouches for it */
	assert_does_not_work("nats", "localhost", "");     /* it wants TLS */
}

static void a_server_may_ask_who_we_are(void **state)
{
	char options[256];

	(void)state;
	start_server(true);
	snprintf(options, sizeof(options), "tls-ca=%s", files.cert);
	assert_does_not_work("tls", "localhost", options);
	snprintf(options, sizeof(options), "tls-ca=%s&tls-cert=%s&tls-key=%s", files.cert,
		files.cert, files.key);
	assert_works("tls", "localhost", options);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_server_must_be_who_it_says, setup, teardown),
		cmocka_unit_test_setup_teardown(a_server_may_ask_who_we_are, setup, teardown),
	};

	if (!nats_server_exists()) {
		fprintf(stderr, "skipped: NATS is not installed (no nats-server)\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests_name("nats tls faults", tests, NULL, NULL);
}

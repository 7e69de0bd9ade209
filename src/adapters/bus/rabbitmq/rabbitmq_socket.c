/* The socket to the broker: TCP, or TLS with the certificates that the URL names. */
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"

/* Loads the certificates and the private key that the URL names. Sets an empty password for the
 * key, because OpenSSL would otherwise prompt for a password on the terminal. */
static bool use_files(amqp_socket_t *socket, const struct rabbitmq_url *url, char *why, size_t size)
{
	if (url->verify && amqp_ssl_socket_set_cacert(socket, url->cacert_file) != AMQP_STATUS_OK) {
		snprintf(why, size, "the certificates in %s cannot be used (option cacert)",
			url->cacert_file);
		return false;
	}
	if (!url->cert_file)
		return true;
	amqp_ssl_socket_set_key_passwd(socket, "");
	if (amqp_ssl_socket_set_key(socket, url->cert_file, url->key_file) == AMQP_STATUS_OK)
		return true;
	snprintf(why, size, "the certificate in %s with the key in %s cannot be used",
		url->cert_file, url->key_file);
	return false;
}

static amqp_socket_t *new_tls_socket(
	amqp_connection_state_t state, const struct rabbitmq_url *url, char *why, size_t size)
{
	amqp_socket_t *socket = amqp_ssl_socket_new(state);

	if (!socket) {
		snprintf(why, size, "rabbitmq-c cannot use TLS");
		return NULL;
	}
	amqp_ssl_socket_set_verify_peer(socket, url->verify);
	amqp_ssl_socket_set_verify_hostname(socket, url->verify);
	if (amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST) !=
		AMQP_STATUS_OK) {
		snprintf(why, size, "rabbitmq-c has no TLS 1.2");
		return NULL;
	}
	return use_files(socket, url, why, size) ? socket : NULL;
}

amqp_socket_t *rabbitmq_socket_new(
	amqp_connection_state_t state, const struct rabbitmq_url *url, char *why, size_t size)
{
	amqp_socket_t *socket;

	if (url->tls)
		return new_tls_socket(state, url, why, size);
	socket = amqp_tcp_socket_new(state);
	assert(socket); /* fails only if memory runs out */
	return socket;
}

bool rabbitmq_socket_check(const struct rabbitmq_url *url, char *why, size_t size)
{
	amqp_connection_state_t state = amqp_new_connection();
	bool usable;

	assert(state);
	usable = rabbitmq_socket_new(state, url, why, size) != NULL;
	amqp_destroy_connection(state);
	return usable;
}

/*
 * A NATS server with JetStream that a test can stop, kill, freeze, wipe and start again: on a free
 * port, with temporary data, and ended with the test at the latest. One at a time.
 */
#ifndef QUIPU_CONTRACT_NATS_SERVER_H
#define QUIPU_CONTRACT_NATS_SERVER_H

#include <stdbool.h>
#include <stddef.h>

/* Whether there is a nats-server on this machine. */
bool nats_server_exists(void);

/* Lines of configuration for servers started from now on; NULL: none. */
void nats_server_configure(const char *lines);

/* Whether servers started from now on have JetStream, as they do by default. */
void nats_server_use_jetstream(bool use);

/* Returns when it answers; with what it had before, unless that was wiped. The port stays. */
void nats_server_start(void);

/* SIGTERM, and kill -9. Also when it does not run, or is frozen. */
void nats_server_stop(void);
void nats_server_kill(void);

/* Connections stay, and the kernel takes new ones, but nothing is answered. */
void nats_server_freeze(void);
void nats_server_thaw(void);

/* Removes its data. It must not run. */
void nats_server_wipe(void);

/* Ends the server and removes its data; the next has another port. */
void nats_server_remove(void);

int nats_server_port(void);
const char *nats_server_url(void); /* nats://127.0.0.1:PORT */

/* Publishes in the server's own words, with any bytes as headers; NULL: none. */
void nats_server_publish(const char *subject, const char *headers, size_t header_len,
	const char *value, size_t value_len);

#endif

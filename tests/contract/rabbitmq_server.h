/*
 * A private RabbitMQ for tests that stop, freeze and starve it, and look at it from outside: what
 * tests/engines/rabbitmq_control.py can do, over a pipe. One for the whole program.
 */
#ifndef QUIPU_CONTRACT_RABBITMQ_SERVER_H
#define QUIPU_CONTRACT_RABBITMQ_SERVER_H

#include "base/status.h"

/* Before there are threads. Ends the program, with the code that says so, where there is none. */
void rabbitmq_server_start(void);

/* Ends it, however it is. */
void rabbitmq_server_end(void);

const char *rabbitmq_server_url(void);

/* NULL: this broker has no TLS. */
const char *rabbitmq_server_tls_url(void);

/* A line as rabbitmq_control.py describes them, which must succeed. What is behind "ok", until the
 * next line. */
const char *rabbitmq_server_tell(const char *format, ...) QP_PRINTF(1, 2);

/* The same; false: it failed. */
bool rabbitmq_server_try(const char *format, ...) QP_PRINTF(1, 2);

#endif

/* The address of a server as it is written in the URLs of several adapters. */
#ifndef QUIPU_ADAPTERS_SHARED_SERVER_ADDRESS_H
#define QUIPU_ADAPTERS_SHARED_SERVER_ADDRESS_H

#include "base/slice.h"

/*
 * Splits "host", "host:port", "[::1]" or "[::1]:port". `host` points into `text` and is neither
 * decoded nor checked; `port` stays as it is if the text has none. Returns NULL, or says what is
 * wrong in words that complete a sentence for the user.
 */
const char *server_address_parse(struct slice text, struct slice *host, int *port);

#endif

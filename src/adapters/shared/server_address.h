/* Parses the address of a server in a URL, for several adapters. */
#ifndef QUIPU_ADAPTERS_SHARED_SERVER_ADDRESS_H
#define QUIPU_ADAPTERS_SHARED_SERVER_ADDRESS_H

#include "base/slice.h"

/*
 * Splits "host", "host:port", "[::1]" or "[::1]:port". `host` points into `text` and is neither
 * decoded nor checked; `port` stays unchanged if the text has none. Returns NULL on success,
 * otherwise a clause that tells the user what is wrong.
 */
const char *server_address_parse(struct slice text, struct slice *host, int *port);

#endif

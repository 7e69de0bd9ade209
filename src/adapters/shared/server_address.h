/* Parses the address of a server in a URL, for several adapters. */
#ifndef QUIPU_ADAPTERS_SHARED_SERVER_ADDRESS_H
#define QUIPU_ADAPTERS_SHARED_SERVER_ADDRESS_H

#include "base/slice.h"

/*
 * Splits "host", "host:port", "[::1]" or "[::1]:port". Sets `host` to a part of `text`, without
 * decoding or checking it. Leaves `port` unchanged if `text` has no port. Returns NULL on success,
 * otherwise a clause that says what is wrong with the address.
 */
const char *server_address_parse(struct slice text, struct slice *host, int *port);

#endif

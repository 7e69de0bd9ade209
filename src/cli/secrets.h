/*
 * Finds secrets in the URLs of options: the password in postgres://user:password@host, and
 * parameters such as ?password=… or &token=…. Secrets are never printed. A flag with a secret is
 * refused, because everyone on the machine can see flags. Thread-safe.
 */
#ifndef QUIPU_CLI_SECRETS_H
#define QUIPU_CLI_SECRETS_H

#include <stdbool.h>
#include <stdio.h>

bool secrets_in_url(const char *url);

/* Prints the URL with *** in place of each secret. */
void secrets_print_url(FILE *out, const char *url);

#endif

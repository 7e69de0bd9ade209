/*
 * Secrets in the URLs of options: the password in postgres://user:password@host, and parameters
 * such as ?password=… or &token=…. They are never shown, and not taken from flags, which everybody
 * on the machine can see. Pure, any thread.
 */
#ifndef QUIPU_CLI_SECRETS_H
#define QUIPU_CLI_SECRETS_H

#include <stdbool.h>
#include <stdio.h>

bool secrets_in_url(const char *url);

/* The URL with *** for each of its secrets. */
void secrets_print_url(FILE *out, const char *url);

#endif

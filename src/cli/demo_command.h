/*
 * quipu demo [--seconds N] starts a server that runs every service and keeps its data in a
 * temporary folder. Then it prints the URL of the server's console and sends simulated traffic to
 * the server. Ctrl-C ends the server and removes the folder. Nothing else on the machine is
 * touched: --listen is the only option that applies, and the server gets no QUIPU_ variable. Main
 * thread only.
 */
#ifndef QUIPU_CLI_DEMO_COMMAND_H
#define QUIPU_CLI_DEMO_COMMAND_H

#include "cli/options.h"

/* The command's own flags, for options_read(). */
extern const char *const demo_flags[];

/* Returns the exit status: 0 if the user ended the demo, 1 if the server or a request failed or no
 * folder could be created, or 2 if the arguments are wrong. */
int demo_run(const struct settings *settings, const struct operands *operands);

#endif

/*
 * quipu health sends a request to /healthz to check whether a server is alive. It is for the health
 * checks of containers and supervisors, so that an image needs no other program for them, such as
 * curl. It does not check the stores and brokers that the server depends on; /readyz does. Main
 * thread only.
 */
#ifndef QUIPU_CLI_HEALTH_COMMAND_H
#define QUIPU_CLI_HEALTH_COMMAND_H

#include "cli/options.h"

/* Returns the exit status: 0 if the server is alive, 1 if not, or 2 for wrong arguments. */
int health_run(const struct settings *settings, const struct operands *operands);

#endif

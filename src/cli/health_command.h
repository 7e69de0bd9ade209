/*
 * quipu health: asks a running server at /healthz whether it is alive, for the health checks of
 * containers and supervisors, so that an image needs no other program for it. It says nothing of
 * what the server stands on; /readyz does. Main thread.
 */
#ifndef QUIPU_CLI_HEALTH_COMMAND_H
#define QUIPU_CLI_HEALTH_COMMAND_H

#include "cli/options.h"

/* Returns what main() returns: 0 where it is alive, 1 where not, 2 for a wrong use. */
int health_run(const struct settings *settings);

#endif

/* Checks the names of environment variables. The variables that set options are read in
 * cli/settings.c. Main thread only. */
#ifndef QUIPU_CLI_VARIABLES_H
#define QUIPU_CLI_VARIABLES_H

/* Logs a warning for each variable QUIPU_… that no part of the program reads and that Kubernetes
 * does not set. */
void variables_warn(void);

#endif

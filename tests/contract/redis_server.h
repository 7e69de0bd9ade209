/*
 * A Redis that a test can kill, freeze and start again: on a free port, with temporary data, and
 * ended with the test at the latest. One at a time.
 */
#ifndef QUIPU_CONTRACT_REDIS_SERVER_H
#define QUIPU_CONTRACT_REDIS_SERVER_H

#include <stdbool.h>

/* Whether there is a redis-server on this machine. */
bool redis_server_exists(void);

/* Returns when it answers; with what SAVE has written before, if anything. The port stays. */
void redis_server_start(void);

/* kill -9. Also when it does not run, or is frozen. */
void redis_server_kill(void);

/* Connections stay, and the kernel takes new ones, but nothing is answered. */
void redis_server_freeze(void);
void redis_server_thaw(void);

/* Ends the server and removes its data. */
void redis_server_remove(void);

int redis_server_port(void);
const char *redis_server_url(void); /* redis://127.0.0.1:PORT */

/* One command, its words parted by spaces, without %. Returns an integer answer, else 1; an error
 * fails the test. */
long long redis_server_tell(const char *command);

/* Ends every connection whose last command was a script. The cache's own PING is left alone: to end
 * it twice while it waits for its answer is an outage, and how often that happens is chance. */
void redis_server_end_sessions(void);

#endif

/*
 * A server that belongs to one test program: it can be ended, frozen and started again, keeps its
 * port and its data meanwhile, and dies with the program.
 *
 * The port is held by a socket that is bound to it and never listens. The kernel hands such a port
 * to nobody else, and a server that names it and sets SO_REUSEADDR may listen on it all the same.
 */
#ifndef QUIPU_CONTRACT_PRIVATE_SERVER_H
#define QUIPU_CONTRACT_PRIVATE_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct private_server {
	const char *name; /* "redis": part of the folder's name */
	pid_t pid;        /* 0: does not run */
	int port;         /* 0: it has no place yet */
	int holder;       /* the socket that holds the port */
	char port_text[8];
	char folder[128]; /* of its data */
};

/* A port of 127.0.0.1 on which nobody listens and that nobody else gets until `*holder` is
 * closed. */
int private_port(int *holder);

/* Chooses a port and a folder, unless it has them. */
void private_server_place(struct private_server *server);

/* Starts argv[0] from the main thread, and returns when answers() is true. */
void private_server_start(
	struct private_server *server, const char *const argv[], bool (*answers)(void));

/* Ends it with a signal, also if it is frozen. Does nothing if it does not run. */
void private_server_end(struct private_server *server, int how);

/* Connections stay, and the kernel takes new ones, but nothing is answered. */
void private_server_freeze(struct private_server *server);
void private_server_thaw(struct private_server *server);

/* Kills it, and removes its folder and lets go of its port. */
void private_server_remove(struct private_server *server);

/* Removes a folder with all that is in it. It need not be there. */
void private_server_remove_folder(const char *folder);

#endif

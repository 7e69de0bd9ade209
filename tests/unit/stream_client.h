/*
 * A client of event streams on a bare socket. It waits up to HANG_MS for what must come. Anything
 * unexpected fails the test.
 */
#ifndef QUIPU_TESTS_STREAM_CLIENT_H
#define QUIPU_TESTS_STREAM_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_BUFFER_SIZE (256 * 1024)

struct stream_client {
	int fd;
	size_t len;
	char *bytes; /* received and not yet read; CLIENT_BUFFER_SIZE bytes */
	char head[1024];
	size_t heartbeats;
	int64_t retry_ms; /* -1 if the server has sent none */
	bool ended;       /* the server has closed the connection */
};

struct client_event {
	int64_t id;
	char data[8192]; /* its lines, cut if they do not fit */
};

/* Connects. `receive_buffer` is for a client that reads slowly; 0 means the usual size. */
void client_connect(struct stream_client *client, int port, int receive_buffer);
void client_close(struct stream_client *client);

/* Leaves without an orderly end, so that the server gets a reset. */
void client_vanish(struct stream_client *client);

void client_send(struct stream_client *client, const char *text);

/* Sends GET `target` with `more` header lines and reads the head of the answer. */
void client_get(struct stream_client *client, const char *target, const char *more);

/* Reads up to the end of a head into `head`, including its blank line. */
void client_read_head(struct stream_client *client);

/* Reads `len` bytes of a body; they stay valid until the next call. */
const char *client_read(struct stream_client *client, size_t len);

/* Waits for the next event. Notes heartbeats and retry times that come before it. */
void client_next(struct stream_client *client, struct client_event *event);

/* Waits for the next event and returns its id. */
int64_t client_next_id(struct stream_client *client);

/* Waits for an event that need not come. Returns false if none came within `timeout_ms`, or if the
 * connection has ended. */
bool client_next_within(
	struct stream_client *client, struct client_event *event, int64_t timeout_ms);

/* Waits for a heartbeat. Fails if an event comes first. */
void client_wait_heartbeat(struct stream_client *client);

/* Reads until the server closes. */
void client_wait_end(struct stream_client *client);

#endif

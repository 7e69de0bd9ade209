/* A client of event streams on a bare socket. Whatever surprises it ends the test. */
#ifndef QUIPU_TESTS_STREAM_CLIENT_H
#define QUIPU_TESTS_STREAM_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_BUFFER_SIZE (256 * 1024)

struct stream_client {
	int fd;
	size_t len;
	char *bytes; /* received and not read, CLIENT_BUFFER_SIZE */
	char head[1024];
	size_t heartbeats;
	int64_t retry_ms; /* -1: not told */
	bool ended;       /* the server closed */
};

struct client_event {
	int64_t id;
	char data[8192]; /* its lines, and no more than fits */
};

/* `receive_buffer` is for a client that reads slowly; 0: the usual size. */
void client_connect(struct stream_client *client, int port, int receive_buffer);
void client_close(struct stream_client *client);

/* Goes without an orderly end: the server gets a reset. */
void client_vanish(struct stream_client *client);

void client_send(struct stream_client *client, const char *text);

/* Sends GET `target` with `more` header lines and reads the head of the answer. */
void client_get(struct stream_client *client, const char *target, const char *more);

/* Reads up to the end of a head into `head`, with its blank line. */
void client_read_head(struct stream_client *client);

/* Reads `len` bytes of a body; they stay valid until the next call. */
const char *client_read(struct stream_client *client, size_t len);

/*
 * The next event; false: none within `timeout_ms`, or `ended`. Heartbeats and retry times on the
 * way are noted.
 */
bool client_next(struct stream_client *client, struct client_event *event, int timeout_ms);

/* The id of the next event, which must come within a few seconds. */
int64_t client_next_id(struct stream_client *client);

/* Reads until the server closes. false: it does not within `timeout_ms`. */
bool client_wait_end(struct stream_client *client, int timeout_ms);

#endif

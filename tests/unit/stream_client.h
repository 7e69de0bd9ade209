/*
 * A client of event streams on a bare socket. It waits for what must come until HANG_MS have
 * passed; whatever surprises it ends the test.
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

/* Waits for the next event. Heartbeats and retry times on the way are noted. */
void client_next(struct stream_client *client, struct client_event *event);

/* Waits for the next event and returns its id. */
int64_t client_next_id(struct stream_client *client);

/* Waits for an event that need not come. false: none within `timeout_ms`, or `ended`. */
bool client_next_within(
	struct stream_client *client, struct client_event *event, int64_t timeout_ms);

/* Waits for a heartbeat, before which no event may come. */
void client_wait_heartbeat(struct stream_client *client);

/* Reads until the server closes. */
void client_wait_end(struct stream_client *client);

#endif

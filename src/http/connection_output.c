/*
 * Sends the output of a connection, encrypted if the client speaks TLS. Most answers fit into the
 * socket's buffer, so bytes are first written straight to the socket. libuv gets a copy of the
 * bytes that do not fit, and the connection's `write_backlog` counts these bytes. A large backlog
 * means that the client reads too slowly; until the backlog shrinks, no input is read from that
 * client.
 */
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/container.h"
#include "http/connection.h"

/* The size of the kernel's send buffer for an HTTP/1.1 connection with a stream. By default the
 * kernel would buffer megabytes of old values for a client that does not read. */
#define STREAM_SEND_BUFFER (8 * 1024)

static int64_t now_ns(const struct connection *connection)
{
	return clock_steady_ns(connection->worker->clock);
}

struct pending_write {
	uv_write_t uv;
	struct connection *connection;
	size_t len;
	char bytes[];
};

static void on_written(uv_write_t *uv, int failed)
{
	struct pending_write *write = CONTAINER_OF(uv, struct pending_write, uv);
	struct connection *connection = write->connection;

	connection->write_backlog -= write->len;
	connection->active_ns = now_ns(connection);
	free(write);
	if (failed)
		connection_close(connection);
	else
		connection_pump(connection);
}

/* The kernel has accepted the first `done` bytes of the parts. Copies the remaining bytes and lets
 * libuv write them. */
static void write_rest(
	struct connection *connection, const uv_buf_t *parts, size_t count, size_t done)
{
	struct pending_write *write;
	size_t total = 0, filled = 0;
	uv_buf_t rest;

	for (size_t i = 0; i < count; i++)
		total += parts[i].len;
	write = qp_malloc(sizeof(*write) + total - done);
	for (size_t i = 0; i < count; i++) {
		size_t skip = done < parts[i].len ? done : parts[i].len;

		memcpy(write->bytes + filled, parts[i].base + skip, parts[i].len - skip);
		filled += parts[i].len - skip;
		done -= skip;
	}
	write->connection = connection;
	write->len = filled;
	connection->write_backlog += filled;
	rest = uv_buf_init(write->bytes, (unsigned)filled);
	if (uv_write(&write->uv, (uv_stream_t *)&connection->tcp, &rest, 1, on_written) != 0) {
		connection->write_backlog -= filled;
		free(write);
		connection_close(connection);
	}
}

static void send_parts(struct connection *connection, const uv_buf_t *parts, size_t count)
{
	size_t total = 0;
	int done = uv_try_write((uv_stream_t *)&connection->tcp, parts, (unsigned)count);

	if (done < 0 && done != UV_EAGAIN) {
		connection_close(connection);
		return;
	}
	for (size_t i = 0; i < count; i++)
		total += parts[i].len;
	connection->pump_bytes += total;
	if (done < 0)
		done = 0;
	if ((size_t)done < total)
		write_rest(connection, parts, count, (size_t)done);
}

void connection_send_output(struct connection *connection)
{
	size_t len;
	char *bytes = tls_session_take_output(connection->tls, &len);
	uv_buf_t part = uv_buf_init(bytes, (unsigned)len);

	if (bytes)
		send_parts(connection, &part, 1);
	free(bytes);
}

void connection_write_parts(struct connection *connection, const uv_buf_t *parts, size_t count)
{
	if (!connection->tls) {
		send_parts(connection, parts, count);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (!tls_session_write(connection->tls, slice_make(parts[i].base, parts[i].len))) {
			connection_close(connection);
			return;
		}
	}
	connection_send_output(connection);
}

void connection_write(struct connection *connection, struct slice bytes)
{
	uv_buf_t part = uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.len);

	connection->active_ns = now_ns(connection);
	connection_write_parts(connection, &part, 1);
}

void connection_favour_new_values(struct connection *connection)
{
	uv_handle_t *tcp = (uv_handle_t *)&connection->tcp;
	unsigned stall_ms = (unsigned)(connection->worker->limits->stream_stall_ns / NS_PER_MS);
	int size = STREAM_SEND_BUFFER;
	int fd;

	uv_send_buffer_size(tcp, &size);
	/* Without this limit, the kernel would retransmit to an unplugged client for 15 minutes. */
	if (uv_fileno(tcp, &fd) == 0)
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &stall_ms, sizeof(stall_ms));
}

/* ---- slow readers ------------------------------------------------------------------------ */

/* Returns how many bytes of the writes that are under way the client's machine has not received. */
static size_t unreceived_bytes(const struct connection *connection)
{
	const uv_stream_t *stream = (const uv_stream_t *)&connection->tcp;
	int fd, in_kernel = 0;

	if (uv_fileno((const uv_handle_t *)stream, &fd) != 0 ||
		ioctl(fd, SIOCOUTQ, &in_kernel) != 0)
		in_kernel = 0;
	return uv_stream_get_write_queue_size(stream) + (size_t)in_kernel;
}

void connection_note_reading(struct connection *connection)
{
	size_t unreceived = unreceived_bytes(connection);

	if (unreceived < connection->unreceived)
		connection->active_ns = now_ns(connection);
	connection->unreceived = unreceived;
}

#include "http/access_log.h"

#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "http/connection.h"
#include "http/router.h"

#define NUMBER_SIZE 24
/* The text of a link-local address also contains the name of the network interface. */
#define CLIENT_SIZE (INET6_ADDRSTRLEN + IF_NAMESIZE)

/* Writes the client's address, without the port, to `out` and returns it. Returns an empty slice if
 * the client is gone. */
static struct slice write_client(const struct connection *connection, char out[CLIENT_SIZE])
{
	struct sockaddr_storage peer;
	int len = sizeof(peer);

	if (uv_tcp_getpeername(&connection->tcp, (struct sockaddr *)&peer, &len) != 0 ||
		getnameinfo((struct sockaddr *)&peer, (socklen_t)len, out, CLIENT_SIZE, NULL, 0,
			NI_NUMERICHOST) != 0)
		return (struct slice){0};
	return slice_of(out);
}

static struct slice trace_id(struct slice traceparent)
{
	if (traceparent.len < TRACEPARENT_LEN)
		return (struct slice){0};
	return slice_make(traceparent.data + 3, 32);
}

static struct slice write_number(char out[NUMBER_SIZE], int64_t number)
{
	snprintf(out, NUMBER_SIZE, "%lld", (long long)number);
	return slice_of(out);
}

void access_log(const struct request *request, int64_t duration_ns)
{
	char status[NUMBER_SIZE], duration[NUMBER_SIZE], bytes[NUMBER_SIZE];
	char client[CLIENT_SIZE];
	int64_t sent = request->head_only ? 0 : (int64_t)request->answer.body.len;
	const struct log_field fields[] = {
		{.name = "method", .value = request->method},
		{.name = "route", .value = slice_of(request->route ? request->route->path : "")},
		{"status", write_number(status, request->answer.http_status), true},
		{"duration_us", write_number(duration, duration_ns / NS_PER_US), true},
		{"bytes", write_number(bytes, sent), true},
		{.name = "protocol", .value = slice_of(request->connection->protocol->name)},
		{.name = "client", .value = write_client(request->connection, client)},
		{.name = "request_id", .value = request->id},
		{.name = "trace_id", .value = trace_id(request->traceparent)},
	};

	log_line_with(LOG_INFO, "access", fields, sizeof(fields) / sizeof(fields[0]), "answered");
}

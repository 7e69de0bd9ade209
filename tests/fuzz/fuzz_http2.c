/*
 * Frames of HTTP/2 after the preface, sent to a real server with requests, reads in a lane and
 * event streams behind it. The first byte of the input says in which pieces the rest is sent.
 * Whatever is sent, the server ends the connection after the client's last byte, forgets
 * everything, and still answers.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../unit/stream_fixture.h"
#include "http/http2.h"
#include "target.h"

#define HANG_S 10

/* libFuzzer's timer would interrupt a connect or a read, which then looks like a finding. A hang is
 * found by HANG_S. */
static void shut_out_the_timer(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGALRM);
	MUST(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
}

/* A closed connection keeps its port for a minute, in which there are more inputs than ports. So
 * every connection comes from the next of 250 addresses. */
static void come_from_the_next_address(int fd)
{
	static unsigned connected;
	struct sockaddr_in source = {.sin_family = AF_INET};
	int yes = 1;

	source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + connected++ % 250);
	MUST(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof(yes)) == 0);
	MUST(bind(fd, (struct sockaddr *)&source, sizeof(source)) == 0);
}

static int connect_to(const struct stream_fixture *fixture)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	struct timeval patience = {.tv_sec = HANG_S};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_port = htons((uint16_t)stream_fixture_port(fixture));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	MUST(fd >= 0);
	come_from_the_next_address(fd);
	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
	MUST(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

/* Returns false if the server has closed already. */
static bool send_all(int fd, const void *bytes, size_t len)
{
	const char *at = bytes;

	while (len > 0) {
		ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		at += sent;
		len -= (size_t)sent;
	}
	return true;
}

static void read_to_the_end(int fd)
{
	char bytes[4096];
	ssize_t len;

	do
		len = recv(fd, bytes, sizeof(bytes), 0);
	while (len > 0);
	MUST(len == 0 || errno == ECONNRESET); /* and not a time-out */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char settings[9] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
	static struct stream_fixture fixture;
	size_t piece, sent = 0;
	int fd;

	if (size == 0)
		return 0;
	if (!fixture.server) {
		shut_out_the_timer();
		stream_fixture_start(&fixture, 1, 3600 * 1000, 3600 * 1000);
	}
	piece = data[0] == 0 ? size : data[0];
	fd = connect_to(&fixture);
	MUST(send_all(fd, HTTP2_PREFACE, sizeof(HTTP2_PREFACE) - 1));
	MUST(send_all(fd, settings, sizeof(settings)));
	for (size_t at = 1; at < size; at += sent) {
		sent = size - at < piece ? size - at : piece;
		if (!send_all(fd, data + at, sent))
			break;
	}
	shutdown(fd, SHUT_WR);
	read_to_the_end(fd);
	close(fd);
	stream_fixture_wait_metric(&fixture, "quipu_http2_connections", 0);
	stream_fixture_wait_metric(&fixture, "quipu_http_streams", 0);
	return 0;
}

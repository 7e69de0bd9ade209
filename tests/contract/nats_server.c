/*
 * Starts and stops nats-server as a child process, by its pid. The port is chosen once and kept
 * over restarts, so that clients can reconnect to the same URL.
 */
#include "nats_server.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "private_server.h"

#define PROGRAM "/usr/sbin/nats-server"

static struct private_server server = {.name = "nats"};
static char url[64];
static char store[160]; /* in its folder */
static char config[160];
static char log_file[160];
static bool with_jetstream = true;

bool nats_server_exists(void)
{
	return access(PROGRAM, X_OK) == 0;
}

static void choose_place(void)
{
	if (server.port > 0)
		return;
	private_server_place(&server);
	snprintf(url, sizeof(url), "nats://127.0.0.1:%d", server.port);
	snprintf(store, sizeof(store), "%s/data", server.folder);
	snprintf(config, sizeof(config), "%s/config", server.folder);
	snprintf(log_file, sizeof(log_file), "%s/log", server.folder);
	nats_server_configure(NULL);
}

void nats_server_configure(const char *lines)
{
	FILE *file;

	choose_place();
	file = fopen(config, "w");
	assert_non_null(file);
	fputs(lines ? lines : "", file);
	assert_int_equal(fclose(file), 0);
}

void nats_server_use_jetstream(bool use)
{
	with_jetstream = use;
}

/* ---- a connection of our own ------------------------------------------------------------- */

/* Connected, and greeted; else -1. */
static int try_to_connect(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)server.port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char greeting[4096];

	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		recv(fd, greeting, sizeof(greeting), 0) > 5 && memcmp(greeting, "INFO ", 5) == 0)
		return fd;
	close(fd);
	return -1;
}

static void say(int fd, const char *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

void nats_server_publish(const char *subject, const char *headers, size_t header_len,
	const char *value, size_t value_len)
{
	static const char hello[] = "CONNECT {\"verbose\":false,\"headers\":true}\r\n";
	static const char goodbye[] = "\r\nPING\r\n";
	int fd = try_to_connect();
	char line[256];
	int len = headers ? snprintf(line, sizeof(line), "HPUB %s %zu %zu\r\n", subject, header_len,
				    header_len + value_len)
			  : snprintf(line, sizeof(line), "PUB %s %zu\r\n", subject, value_len);

	assert_true(fd >= 0);
	say(fd, hello, sizeof(hello) - 1);
	say(fd, line, (size_t)len);
	if (headers)
		say(fd, headers, header_len);
	say(fd, value, value_len);
	say(fd, goodbye, sizeof(goodbye) - 1);
	assert_true(recv(fd, line, sizeof(line), 0) >= 4);
	assert_memory_equal(line, "PONG", 4);
	close(fd);
}

/* ---- start and end ----------------------------------------------------------------------- */

static bool answers(void)
{
	int fd = try_to_connect();

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void nats_server_start(void)
{
	const char *const argv[] = {PROGRAM, "-c", config, "-a", "127.0.0.1", "-p",
		server.port_text, "-sd", store, "-l", log_file, with_jetstream ? "-js" : NULL,
		NULL};

	choose_place();
	private_server_start(&server, argv, answers);
}

void nats_server_stop(void)
{
	private_server_end(&server, SIGTERM);
}

void nats_server_kill(void)
{
	private_server_end(&server, SIGKILL);
}

void nats_server_freeze(void)
{
	private_server_freeze(&server);
}

void nats_server_thaw(void)
{
	private_server_thaw(&server);
}

void nats_server_wipe(void)
{
	assert_int_equal(server.pid, 0);
	private_server_remove_folder(store);
}

void nats_server_remove(void)
{
	private_server_remove(&server);
}

int nats_server_port(void)
{
	return server.port;
}

const char *nats_server_url(void)
{
	return url;
}

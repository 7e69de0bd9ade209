#include "nats_server.h"

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "waiting.h"

#define PROGRAM "/usr/sbin/nats-server"

static struct {
	pid_t pid; /* 0: does not run */
	int port;
	char port_text[8];
	char url[64];
	char folder[64];
	char data[96];
	char config[96];
	char log[96];
} server;

bool nats_server_exists(void)
{
	return access(PROGRAM, X_OK) == 0;
}

static int free_port(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	close(fd);
	return ntohs(address.sin_port);
}

static void choose_place(void)
{
	if (server.port > 0)
		return;
	server.port = free_port();
	snprintf(server.port_text, sizeof(server.port_text), "%d", server.port);
	snprintf(server.url, sizeof(server.url), "nats://127.0.0.1:%d", server.port);
	snprintf(server.folder, sizeof(server.folder), "/tmp/quipu-nats-faults-XXXXXX");
	assert_non_null(mkdtemp(server.folder));
	snprintf(server.data, sizeof(server.data), "%s/data", server.folder);
	snprintf(server.config, sizeof(server.config), "%s/config", server.folder);
	snprintf(server.log, sizeof(server.log), "%s/log", server.folder);
	nats_server_configure(NULL);
}

void nats_server_configure(const char *lines)
{
	FILE *file;

	choose_place();
	file = fopen(server.config, "w");
	assert_non_null(file);
	fputs(lines ? lines : "", file);
	assert_int_equal(fclose(file), 0);
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

/* After fork() in a process with threads, only system calls. */
static void become_nats(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(PROGRAM, "nats-server", "-c", server.config, "-a", "127.0.0.1", "-p",
		server.port_text, "-js", "-sd", server.data, "-l", server.log, (char *)NULL);
	_exit(127);
}

static bool answers(void)
{
	int fd = try_to_connect();

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void nats_server_start(void)
{
	assert_int_equal(server.pid, 0);
	choose_place();
	server.pid = fork();
	assert_true(server.pid >= 0);
	if (server.pid == 0)
		become_nats();
	WAIT_UNTIL(answers());
}

static void end(int how)
{
	if (server.pid == 0)
		return;
	kill(server.pid, how);
	kill(server.pid, SIGCONT);
	waitpid(server.pid, NULL, 0);
	server.pid = 0;
}

void nats_server_stop(void)
{
	end(SIGTERM);
}

void nats_server_kill(void)
{
	end(SIGKILL);
}

void nats_server_freeze(void)
{
	int how = 0;

	assert_int_equal(kill(server.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(server.pid, &how, WUNTRACED), server.pid);
	assert_true(WIFSTOPPED(how));
}

void nats_server_thaw(void)
{
	assert_int_equal(kill(server.pid, SIGCONT), 0);
}

/* ---- data -------------------------------------------------------------------------------- */

static void remove_folder(const char *folder)
{
	char command[160];

	assert_true(strncmp(folder, "/tmp/quipu-nats-faults-", 23) == 0);
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	assert_int_equal(system(command), 0);
}

void nats_server_wipe(void)
{
	assert_int_equal(server.pid, 0);
	remove_folder(server.data);
}

void nats_server_remove(void)
{
	nats_server_kill();
	if (server.port > 0)
		remove_folder(server.folder);
	server.port = 0;
}

int nats_server_port(void)
{
	return server.port;
}

const char *nats_server_url(void)
{
	return server.url;
}

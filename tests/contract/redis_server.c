#include "redis_server.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache_fixture.h"
#include "waiting.h"

static struct {
	pid_t pid; /* 0: does not run */
	int port;
	char port_text[8];
	char url[64];
	char folder[64];
} server;

bool redis_server_exists(void)
{
	return access("/usr/bin/redis-server", X_OK) == 0;
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
	snprintf(server.url, sizeof(server.url), "redis://127.0.0.1:%d", server.port);
	snprintf(server.folder, sizeof(server.folder), "/tmp/quipu-redis-faults-XXXXXX");
	assert_non_null(mkdtemp(server.folder));
}

static redisReply *try_to_tell(const char *command)
{
	const struct timeval timeout = {.tv_sec = 5};
	redisContext *context = redisConnectWithTimeout("127.0.0.1", server.port, timeout);
	redisReply *reply = NULL;

	if (context && !context->err && redisSetTimeout(context, timeout) == REDIS_OK)
		reply = redisCommand(context, command);
	redisFree(context);
	return reply;
}

static bool answers(void)
{
	redisReply *reply = try_to_tell("PING");
	bool ok = reply && reply->type == REDIS_REPLY_STATUS;

	freeReplyObject(reply);
	return ok;
}

/* After fork() in a process with threads, only system calls. */
static void become_redis(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl("/usr/bin/redis-server", "redis-server", "--port", server.port_text, "--bind",
		"127.0.0.1", "--dir", server.folder, "--save", "", "--appendonly", "no",
		"--daemonize", "no", "--loglevel", "warning", "--logfile", "log", (char *)NULL);
	_exit(127);
}

void redis_server_start(void)
{
	assert_int_equal(server.pid, 0);
	choose_place();
	server.pid = fork();
	assert_true(server.pid >= 0);
	if (server.pid == 0)
		become_redis();
	WAIT_UNTIL(answers());
}

void redis_server_kill(void)
{
	if (server.pid == 0)
		return;
	kill(server.pid, SIGKILL);
	waitpid(server.pid, NULL, 0);
	server.pid = 0;
}

void redis_server_freeze(void)
{
	int how = 0;

	assert_int_equal(kill(server.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(server.pid, &how, WUNTRACED), server.pid);
	assert_true(WIFSTOPPED(how));
}

void redis_server_thaw(void)
{
	assert_int_equal(kill(server.pid, SIGCONT), 0);
}

static void remove_file(const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", server.folder, name);
	unlink(path);
}

void redis_server_remove(void)
{
	redis_server_kill();
	remove_file("dump.rdb");
	remove_file("log");
	rmdir(server.folder);
	server.port = 0;
}

int redis_server_port(void)
{
	return server.port;
}

const char *redis_server_url(void)
{
	return server.url;
}

long long redis_server_tell(const char *command)
{
	redisReply *reply = try_to_tell(command);
	long long answer;

	if (!reply)
		fail_msg("Redis does not answer \"%s\"", command);
	if (reply->type == REDIS_REPLY_ERROR)
		fail_msg("Redis answers \"%s\" with %s", command, reply->str);
	answer = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 1;
	freeReplyObject(reply);
	return answer;
}

static void end_client_of(const char *line)
{
	long long id;
	char command[64];

	if (!strstr(line, " cmd=evalsha "))
		return;
	assert_int_equal(sscanf(line, "id=%lld ", &id), 1);
	snprintf(command, sizeof(command), "CLIENT KILL ID %lld", id);
	redis_server_tell(command);
}

void redis_server_end_sessions(void)
{
	redisReply *reply = try_to_tell("CLIENT LIST");
	char *rest = NULL;

	assert_non_null(reply);
	for (char *line = strtok_r(reply->str, "\n", &rest); line;
		line = strtok_r(NULL, "\n", &rest))
		end_client_of(line);
	freeReplyObject(reply);
}

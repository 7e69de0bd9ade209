#include "redis_server.h"

#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "private_server.h"

#define PROGRAM "/usr/bin/redis-server"

static struct private_server server = {.name = "redis"};
static char url[64];

bool redis_server_exists(void)
{
	return access(PROGRAM, X_OK) == 0;
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

void redis_server_start(void)
{
	const char *const argv[] = {PROGRAM, "--port", server.port_text, "--bind", "127.0.0.1",
		"--dir", server.folder, "--save", "", "--appendonly", "no", "--daemonize", "no",
		"--loglevel", "warning", "--logfile", "log", NULL};

	private_server_start(&server, argv, answers);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server.port);
}

void redis_server_kill(void)
{
	private_server_end(&server, SIGKILL);
}

void redis_server_freeze(void)
{
	private_server_freeze(&server);
}

void redis_server_thaw(void)
{
	private_server_thaw(&server);
}

void redis_server_remove(void)
{
	private_server_remove(&server);
}

int redis_server_port(void)
{
	return server.port;
}

const char *redis_server_url(void)
{
	return url;
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

#include "rabbitmq_server.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define SKIPPED 77

static pid_t pid;
static FILE *to;
static FILE *from;
static char answer[256 * 1024];
static char url[128];
static char tls_url[256];

/* The answer to the last line. false: it does not begin with "ok". */
static bool hear(void)
{
	if (!fgets(answer, sizeof(answer), from)) {
		snprintf(answer, sizeof(answer), "error the broker's keeper is gone");
		return false;
	}
	answer[strcspn(answer, "\n")] = '\0';
	return strncmp(answer, "ok", 2) == 0;
}

/* The keeper ends, and its broker with it, when this program's end of `input` is closed. */
static void be_the_keeper(const int input[2], const int output[2])
{
	dup2(input[0], STDIN_FILENO);
	dup2(output[1], STDOUT_FILENO);
	execl("/usr/bin/python3", "python3",
		QUIPU_CONTRACT_FOLDER "/../engines/rabbitmq_control.py", (char *)NULL);
	_exit(127);
}

static void give_up(void)
{
	int status = 0;

	waitpid(pid, &status, 0);
	exit(WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED ? SKIPPED : 1);
}

void rabbitmq_server_start(void)
{
	int input[2];
	int output[2];

	if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0 || (pid = fork()) < 0) {
		perror("rabbitmq_server");
		exit(1);
	}
	if (pid == 0)
		be_the_keeper(input, output);
	close(input[0]);
	close(output[1]);
	to = fdopen(input[1], "w");
	from = fdopen(output[0], "r");
	if (!hear() || sscanf(answer, "ok %127s %255s", url, tls_url) != 2)
		give_up();
}

void rabbitmq_server_end(void)
{
	fclose(to);
	waitpid(pid, NULL, 0);
	fclose(from);
}

const char *rabbitmq_server_url(void)
{
	return url;
}

const char *rabbitmq_server_tls_url(void)
{
	return strcmp(tls_url, "-") == 0 ? NULL : tls_url;
}

QP_PRINTF(1, 0)
static bool tell(const char *format, va_list arguments)
{
	vfprintf(to, format, arguments);
	fputc('\n', to);
	fflush(to);
	return hear();
}

bool rabbitmq_server_try(const char *format, ...)
{
	va_list arguments;
	bool done;

	va_start(arguments, format);
	done = tell(format, arguments);
	va_end(arguments);
	if (!done)
		print_message("%s: %s\n", format, answer);
	return done;
}

const char *rabbitmq_server_tell(const char *format, ...)
{
	va_list arguments;
	bool done;

	va_start(arguments, format);
	done = tell(format, arguments);
	va_end(arguments);
	if (!done)
		fail_msg("%s: %s", format, answer);
	return answer[2] ? answer + 3 : answer + 2;
}

#include "private_server.h"

#include <arpa/inet.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "waiting.h"

#define OPEN_FOLDERS_MAX 16

/* ---- its place --------------------------------------------------------------------------- */

int private_port(int *holder)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	*holder = fd;
	return ntohs(address.sin_port);
}

void private_server_place(struct private_server *server)
{
	const char *parent = getenv("TMPDIR");

	if (server->port > 0)
		return;
	server->port = private_port(&server->holder);
	snprintf(server->port_text, sizeof(server->port_text), "%d", server->port);
	snprintf(server->folder, sizeof(server->folder), "%s/quipu-%s-faults-XXXXXX",
		parent ? parent : "/tmp", server->name);
	assert_non_null(mkdtemp(server->folder));
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
	(void)info;
	(void)kind;
	(void)place;
	return remove(path);
}

void private_server_remove_folder(const char *folder)
{
	if (access(folder, F_OK) == 0)
		assert_int_equal(
			nftw(folder, remove_one, OPEN_FOLDERS_MAX, FTW_DEPTH | FTW_PHYS), 0);
}

void private_server_remove(struct private_server *server)
{
	private_server_end(server, SIGKILL);
	if (server->port == 0)
		return;
	private_server_remove_folder(server->folder);
	close(server->holder);
	server->port = 0;
}

/* ---- its life ---------------------------------------------------------------------------- */

/* After fork() in a process with threads, only system calls. */
static void become(const char *const argv[], pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent) /* it may have ended before it was watched */
		execv(argv[0], (char *const *)argv);
	_exit(127);
}

void private_server_start(
	struct private_server *server, const char *const argv[], bool (*answers)(void))
{
	pid_t parent = getpid();

	assert_int_equal(server->pid, 0);
	private_server_place(server);
	server->pid = fork();
	assert_true(server->pid >= 0);
	if (server->pid == 0)
		become(argv, parent);
	WAIT_UNTIL(answers());
}

void private_server_end(struct private_server *server, int how)
{
	if (server->pid == 0)
		return;
	kill(server->pid, how);
	kill(server->pid, SIGCONT);
	waitpid(server->pid, NULL, 0);
	server->pid = 0;
}

void private_server_freeze(struct private_server *server)
{
	int how = 0;

	assert_int_equal(kill(server->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(server->pid, &how, WUNTRACED), server->pid);
	assert_true(WIFSTOPPED(how));
}

void private_server_thaw(struct private_server *server)
{
	assert_int_equal(kill(server->pid, SIGCONT), 0);
}

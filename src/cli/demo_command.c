/*
 * The demo's server is this same program, run in a child process that has its own folder and its
 * own process group. Ctrl-C reaches only this process, which ends the child and removes the folder.
 * Signals are blocked and received with sigtimedwait(), so no signal is missed. If this process is
 * killed, the kernel sends SIGTERM to the server.
 */
#include "cli/demo_command.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/demo_traffic.h"
#include "cli/report.h"

#define DEFAULT_SECONDS 60
#define SECONDS_MAX 3600 /* limited because the traffic fills the folder */
#define ROUND_NS (100 * NS_PER_MS)
#define END_NS NS_PER_S /* how long to wait after a failed request to see if the server exits */
#define START_POLL_NS (20 * NS_PER_MS)
#define TEXT_MAX 4096
#define LISTENING "quipu listening on "

const char *const demo_flags[] = {"seconds", NULL};

struct demo {
	char folder[256];
	char output[300]; /* the path of the file with the server's output */
	char log[300];    /* the path of the server's log */
	char address[128];
	sigset_t signals; /* the signals that end the demo */
	pid_t server;
};

enum pause_end { PAUSE_OVER, PAUSE_STOPPED, PAUSE_SERVER_GONE };

/* Waits up to `ns` nanoseconds for a signal. If `ns` is negative, waits without a limit. */
static enum pause_end wait_for_signal(const struct demo *demo, int64_t ns)
{
	const struct timespec time = {ns / NS_PER_S, ns % NS_PER_S};
	int number;

	do
		number = sigtimedwait(&demo->signals, NULL, ns < 0 ? NULL : &time);
	while (number < 0 && errno == EINTR);
	if (number < 0)
		return PAUSE_OVER;
	return number == SIGCHLD ? PAUSE_SERVER_GONE : PAUSE_STOPPED;
}

/* ---- the folder -------------------------------------------------------------------------- */

static bool create_folder(struct demo *demo)
{
	const char *place = getenv("TMPDIR");

	snprintf(demo->folder, sizeof(demo->folder), "%s/quipu-demo-XXXXXX",
		place && *place ? place : "/tmp");
	if (!mkdtemp(demo->folder))
		return false;
	snprintf(demo->output, sizeof(demo->output), "%s/output", demo->folder);
	snprintf(demo->log, sizeof(demo->log), "%s/log", demo->folder);
	return true;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	(void)status;
	(void)kind;
	(void)walk;
	return remove(path);
}

static void remove_folder(const struct demo *demo)
{
	if (nftw(demo->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
		report_failure(0, "%s could not be removed", demo->folder);
}

/* Reads the end of a file into `text`. If the file does not exist, sets `text` to "". */
static void read_end(const char *path, char text[TEXT_MAX])
{
	FILE *file = fopen(path, "r");
	size_t len = 0;

	if (file) {
		if (fseek(file, -(TEXT_MAX - 1), SEEK_END) != 0)
			rewind(file);
		len = fread(text, 1, TEXT_MAX - 1, file);
		fclose(file);
	}
	text[len] = '\0';
}

/* ---- the server -------------------------------------------------------------------------- */

/* Removes QUIPU_ variables, so that the demo cannot use the data or engines of another server. */
static void drop_settings(void)
{
	extern char **environ;
	char name[128];
	size_t i = 0;

	while (environ[i]) {
		size_t len = strcspn(environ[i], "=");

		if (strncmp(environ[i], "QUIPU_", 6) != 0 || len >= sizeof(name)) {
			i++;
			continue;
		}
		memcpy(name, environ[i], len);
		name[len] = '\0';
		unsetenv(name);
		i = 0;
	}
}

static void open_as(int descriptor, const char *path)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);

	if (file < 0 || dup2(file, descriptor) < 0)
		_exit(EXIT_FAILURE);
}

/* Runs in the child process and turns it into the server. Does not return. */
static void become_server(const struct demo *demo, const char *listen, pid_t parent)
{
	char data[300];
	const char *const words[] = {"quipu", "serve", "--listen", listen, "--data", data,
		"--roles", "all", "--log-format", "text", NULL};

	snprintf(data, sizeof(data), "%s/data", demo->folder);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	sigprocmask(SIG_UNBLOCK, &demo->signals, NULL);
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
	open_as(STDOUT_FILENO, demo->output);
	open_as(STDERR_FILENO, demo->log);
	drop_settings();
	execv("/proc/self/exe", (char *const *)words);
	_exit(EXIT_FAILURE);
}

/* Copies the address from the first line that the server prints. Returns false if the server has
 * not printed it yet. */
static bool find_address(struct demo *demo)
{
	char text[TEXT_MAX];
	const char *begin;
	size_t len;

	read_end(demo->output, text);
	begin = strstr(text, LISTENING);
	if (!begin)
		return false;
	begin += strlen(LISTENING);
	len = strcspn(begin, "\n");
	if (!begin[len] || len >= sizeof(demo->address))
		return false;
	memcpy(demo->address, begin, len);
	demo->address[len] = '\0';
	return true;
}

static enum pause_end start_server(struct demo *demo, const char *listen)
{
	enum pause_end end = PAUSE_OVER;
	pid_t self = getpid();

	demo->server = fork();
	if (demo->server == 0)
		become_server(demo, listen, self);
	if (demo->server < 0)
		return PAUSE_SERVER_GONE;
	while (end == PAUSE_OVER && !find_address(demo))
		end = wait_for_signal(demo, START_POLL_NS);
	return end;
}

static void stop_server(const struct demo *demo)
{
	if (demo->server <= 0)
		return;
	kill(demo->server, SIGTERM);
	while (waitpid(demo->server, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Prints the end of the server's log, and reports `what` as the failure. */
static int report_server(const struct demo *demo, const char *what)
{
	char text[TEXT_MAX];

	read_end(demo->log, text);
	fputs(text, stderr);
	return report_failure(EXIT_FAILURE, "%s; its log is above", what);
}

/* ---- the traffic ------------------------------------------------------------------------- */

static void welcome(const struct demo *demo)
{
	printf("Quipu runs with every service on a temporary folder, %s.\n"
	       "Ctrl-C stops Quipu and removes the folder.\n\n"
	       "  console  %s/console\n"
	       "  API      %s/openapi.json\n\n",
		demo->folder, demo->address, demo->address);
	fflush(stdout);
}

static void show_progress(const struct demo_traffic *traffic, int64_t seconds_left)
{
	if (!isatty(STDOUT_FILENO))
		return;
	printf("\r%d requests answered, %d refused by limits, %lld s to go ", traffic->answered,
		traffic->refused, (long long)seconds_left);
	fflush(stdout);
}

static int64_t now_ns(void)
{
	return clock_steady_ns(&clock_system);
}

/* Plays traffic until the time is over or a signal arrives, and sets `*end` to the reason why the
 * traffic ended. If a request fails, returns false with the reason in traffic->why. */
static bool play_rounds(
	const struct demo *demo, struct demo_traffic *traffic, int64_t seconds, enum pause_end *end)
{
	int64_t until_ns = now_ns() + seconds * NS_PER_S;

	*end = PAUSE_OVER;
	while (*end == PAUSE_OVER && now_ns() < until_ns) {
		if (!demo_traffic_play(traffic))
			return false;
		if (traffic->round % 10 == 0)
			show_progress(traffic, (until_ns - now_ns()) / NS_PER_S);
		*end = wait_for_signal(demo, ROUND_NS);
	}
	return true;
}

static int finish(const struct demo *demo, const struct demo_traffic *traffic, enum pause_end end)
{
	printf("%s%d requests were answered and %d refused by limits and bounds.\n",
		isatty(STDOUT_FILENO) ? "\r\033[K" : "", traffic->answered, traffic->refused);
	if (end == PAUSE_OVER) {
		puts("The traffic has ended. The server runs until Ctrl-C.");
		fflush(stdout);
		end = wait_for_signal(demo, -1);
	}
	return end == PAUSE_SERVER_GONE ? report_server(demo, "the server ended by itself")
					: EXIT_SUCCESS;
}

/* Reports why the traffic stopped: the server has ended, or a request failed. */
static int report_break(const struct demo *demo, const struct demo_traffic *traffic)
{
	if (wait_for_signal(demo, END_NS) == PAUSE_SERVER_GONE)
		return report_server(demo, "the server ended by itself");
	return report_failure(EXIT_FAILURE, "%s", traffic->why);
}

static int play(const struct demo *demo, const struct settings *settings, int64_t seconds)
{
	struct settings own = *settings;
	struct demo_traffic traffic;
	enum pause_end end;
	int code;

	own.server = demo->address;
	if (!demo_traffic_open(&traffic, &own) || !play_rounds(demo, &traffic, seconds, &end))
		code = report_break(demo, &traffic);
	else
		code = finish(demo, &traffic, end);
	demo_traffic_close(&traffic);
	return code;
}

static int run_in_folder(struct demo *demo, const struct settings *settings, int64_t seconds)
{
	enum pause_end end = start_server(demo, settings->listen);

	if (end == PAUSE_STOPPED)
		return EXIT_SUCCESS;
	if (end == PAUSE_SERVER_GONE)
		return report_server(demo, "the server did not start (--listen 127.0.0.1:0 "
					   "chooses a free port)");
	welcome(demo);
	return play(demo, settings, seconds);
}

static void block_signals(struct demo *demo)
{
	sigemptyset(&demo->signals);
	sigaddset(&demo->signals, SIGINT);
	sigaddset(&demo->signals, SIGTERM);
	sigaddset(&demo->signals, SIGHUP);
	sigaddset(&demo->signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &demo->signals, NULL);
}

/* Returns the value of --seconds, or -1 if it is not a valid number of seconds. */
static int64_t read_seconds(const struct operands *operands)
{
	const char *text = operands_flag(operands, "seconds");
	char *end;
	long seconds;

	if (!text)
		return DEFAULT_SECONDS;
	seconds = strtol(text, &end, 10);
	return *text && !*end && seconds >= 0 && seconds <= SECONDS_MAX ? seconds : -1;
}

int demo_run(const struct settings *settings, const struct operands *operands)
{
	int64_t seconds = read_seconds(operands);
	struct demo demo = {0};
	int code;

	if (seconds < 0 || operands->word_count > 0)
		return report_failure(EXIT_USAGE,
			"usage: quipu demo [--listen ADDRESS] [--seconds 0…%d]", SECONDS_MAX);
	block_signals(&demo);
	if (!create_folder(&demo))
		return report_failure(EXIT_FAILURE,
			"no temporary folder could be created in %s: %s", demo.folder,
			strerror(errno));
	code = run_in_folder(&demo, settings, seconds);
	stop_server(&demo);
	remove_folder(&demo);
	return code;
}

#include "base/failpoint.h"

#ifdef QUIPU_TEST_BUILD

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"

#define FAILPOINT_MAX 16

enum action { ACTION_NONE, ACTION_KILL, ACTION_STOP, ACTION_HOLD, ACTION_OFF };

struct failpoint {
	struct slice name;
	enum action action;
	int64_t passes_left;
};

static struct failpoint points[FAILPOINT_MAX];
static size_t point_count;
static pthread_once_t parsed = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static enum action action_of(struct slice word)
{
	if (slice_is(word, "off"))
		return ACTION_OFF;
	if (slice_is(word, "hold"))
		return ACTION_HOLD;
	return slice_is(word, "kill") ? ACTION_KILL : ACTION_STOP;
}

/* Holds the calling thread: open() blocks until the test opens the FIFO, and read() blocks until
 * the test closes the FIFO. */
static void hold(void)
{
	char byte;
	int gate = open(getenv("QUIPU_FAILPOINT_GATE"), O_RDONLY | O_CLOEXEC);

	if (gate < 0 || read(gate, &byte, 1) != 0)
		abort();
	close(gate);
}

static void parse_one(struct slice text)
{
	struct failpoint *point = &points[point_count];

	point->name = slice_cut(&text, '=');
	point->action = action_of(slice_cut(&text, '@'));
	point->passes_left = 1;
	if (text.data && !text_to_int(text, &point->passes_left))
		abort();
	point_count++;
}

static void parse(void)
{
	const char *env = getenv("QUIPU_FAILPOINTS");
	struct slice rest = {0};

	if (env && *env)
		rest = slice_of(env);
	while (rest.data && point_count < FAILPOINT_MAX)
		parse_one(slice_cut(&rest, ','));
}

void failpoint_pass(const char *name)
{
	enum action action = ACTION_NONE;

	pthread_once(&parsed, parse);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < point_count; i++) {
		if (slice_is(points[i].name, name) && --points[i].passes_left == 0)
			action = points[i].action;
	}
	pthread_mutex_unlock(&lock);
	if (action == ACTION_HOLD)
		hold();
	else if (action == ACTION_KILL || action == ACTION_STOP)
		raise(action == ACTION_KILL ? SIGKILL : SIGSTOP);
}

bool failpoint_is_off(const char *name)
{
	pthread_once(&parsed, parse);
	for (size_t i = 0; i < point_count; i++) {
		if (slice_is(points[i].name, name) && points[i].action == ACTION_OFF)
			return true;
	}
	return false;
}

#endif

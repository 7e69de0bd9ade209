#include "base/failpoint.h"

#ifdef QUIPU_TEST_BUILD

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/text.h"

#define FAILPOINT_MAX 16

struct failpoint {
	struct slice name;
	int signal; /* 0 if the action is `off` */
	int64_t passes_left;
};

static struct failpoint points[FAILPOINT_MAX];
static size_t point_count;
static pthread_once_t parsed = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int signal_of(struct slice action)
{
	if (slice_is(action, "off"))
		return 0;
	return slice_is(action, "kill") ? SIGKILL : SIGSTOP;
}

static void parse_one(struct slice text)
{
	struct failpoint *point = &points[point_count];

	point->name = slice_cut(&text, '=');
	point->signal = signal_of(slice_cut(&text, '@'));
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
	int signal = 0;

	pthread_once(&parsed, parse);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < point_count; i++) {
		if (slice_is(points[i].name, name) && --points[i].passes_left == 0)
			signal = points[i].signal;
	}
	pthread_mutex_unlock(&lock);
	if (signal)
		raise(signal);
}

bool failpoint_is_off(const char *name)
{
	pthread_once(&parsed, parse);
	for (size_t i = 0; i < point_count; i++) {
		if (slice_is(points[i].name, name) && points[i].signal == 0)
			return true;
	}
	return false;
}

#endif

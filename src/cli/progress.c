/* The progress line is shorter than 80 columns, so that it never wraps and can always be erased. */
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define BAR_WIDTH 24
#define DRAW_NS (100 * NS_PER_MS)

void progress_begin(struct progress *progress, const char *title, int64_t total)
{
	*progress = (struct progress){
		.title = title,
		.total = total,
		.began_ns = clock_steady_ns(&clock_system),
		.is_shown = isatty(STDERR_FILENO) == 1,
	};
	progress_at(progress, 0);
}

/* Draws a line such as "copying        [=========>              ]  41 %   12 s". */
static void draw_share(const struct progress *progress, int seconds)
{
	int64_t done = progress->done < progress->total ? progress->done : progress->total;
	int share = (int)((double)done / (double)progress->total * 100);
	int filled = share * BAR_WIDTH / 100;
	char bar[BAR_WIDTH + 1];

	for (int i = 0; i < BAR_WIDTH; i++)
		bar[i] = (char)(i < filled ? '=' : i == filled ? '>' : ' ');
	bar[BAR_WIDTH] = '\0';
	fprintf(stderr, "\r\033[K%-30.30s [%s] %3d %% %4d s", progress->title, bar, share, seconds);
}

static void draw(struct progress *progress, int64_t now_ns)
{
	int seconds = (int)((now_ns - progress->began_ns) / NS_PER_S);

	if (progress->total > 0)
		draw_share(progress, seconds);
	else if (progress->done > 0)
		fprintf(stderr, "\r\033[K%-30.30s %12" PRId64 " %4d s", progress->title,
			progress->done, seconds);
	else
		fprintf(stderr, "\r\033[K%-30.30s %4d s", progress->title, seconds);
	fflush(stderr);
	progress->drawn_ns = now_ns;
	progress->is_drawn = true;
}

void progress_at(struct progress *progress, int64_t done)
{
	int64_t now_ns;

	progress->done = done;
	if (!progress->is_shown)
		return;
	now_ns = clock_steady_ns(&clock_system);
	if (!progress->is_drawn || now_ns - progress->drawn_ns >= DRAW_NS)
		draw(progress, now_ns);
}

void progress_hide(struct progress *progress)
{
	if (progress->is_drawn) {
		fputs("\r\033[K", stderr);
		fflush(stderr);
	}
	progress->is_drawn = false;
}

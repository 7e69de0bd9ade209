/*
 * Shows the progress of a long command on one line of standard error, and redraws that line again
 * and again. If standard error is not a terminal, shows nothing. Main thread only.
 */
#ifndef QUIPU_CLI_PROGRESS_H
#define QUIPU_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *title; /* the start of the line, e.g. "copying" or the name of a table */
	int64_t total;     /* the value of `done` at the end; 0 if unknown */
	int64_t done;
	int64_t began_ns;
	int64_t drawn_ns;
	bool is_shown; /* standard error is a terminal */
	bool is_drawn; /* there is a line to erase */
};

/* Shows that the command has begun and nothing is done yet. `title` must outlive `progress`. */
void progress_begin(struct progress *progress, const char *title, int64_t total);

/* Sets how much is done. Draws the line at most ten times a second, so it may be called for each
 * row. */
void progress_at(struct progress *progress, int64_t done);

/* Erases the line, so that something else can be printed. The next progress_at() draws it again. */
void progress_hide(struct progress *progress);

#endif

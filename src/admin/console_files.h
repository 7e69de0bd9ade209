/* The files of the console, embedded at build time by scripts/embed_console.py. */
#ifndef QUIPU_ADMIN_CONSOLE_FILES_H
#define QUIPU_ADMIN_CONSOLE_FILES_H

#include <stddef.h>

struct console_file {
	const char *name; /* "index.html" */
	const char *type; /* its Content-Type */
	const unsigned char *data;
	size_t len;
};

extern const struct console_file console_files[];
extern const size_t console_file_count;

#endif

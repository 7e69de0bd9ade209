/*
 * Reads the file that --config names: lines such as "batch-max = 512" or "batch-max: 512", comments
 * that begin with ; or #, and section headings, which are ignored. Main thread only; blocks.
 */
#ifndef QUIPU_CLI_CONFIG_FILE_H
#define QUIPU_CLI_CONFIG_FILE_H

#include "base/slice.h"
#include "base/status.h"

#define CONFIG_LINE_MAX 4096

/*
 * Calls `take` for each setting, in order; the slices are valid only during the call. If `take`
 * returns false, stops and returns false; `take` must report the reason itself. If the file cannot
 * be read or a line is invalid, returns false and writes the reason to `why` (OPTIONS_WHY_SIZE
 * bytes).
 */
QP_MUST_CHECK bool config_file_read(const char *path,
	bool (*take)(void *context, struct slice name, struct slice text), void *context,
	char *why);

#endif

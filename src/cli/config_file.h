/*
 * Reads the file that --config names: lines such as "batch-max = 512" or "batch-max: 512", comments
 * that begin with ; or #, and section headings, which are ignored. Main thread; blocks.
 */
#ifndef QUIPU_CLI_CONFIG_FILE_H
#define QUIPU_CLI_CONFIG_FILE_H

#include "base/slice.h"
#include "base/status.h"

#define CONFIG_LINE_MAX 4096

/*
 * Calls `take` for each setting, in order, with slices that are valid during the call. Returns
 * false with a reason in `why` (OPTIONS_WHY_SIZE bytes) if the file cannot be read or a line has no
 * such form; and as soon as `take` returns false, which then has written the reason.
 */
QP_MUST_CHECK bool config_file_read(const char *path,
	bool (*take)(void *context, struct slice name, struct slice text), void *context,
	char *why);

#endif

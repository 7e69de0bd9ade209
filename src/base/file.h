/* Reads small files, such as those that hold keys. Any thread; blocks. */
#ifndef QUIPU_BASE_FILE_H
#define QUIPU_BASE_FILE_H

#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

/*
 * Reads up to `size` bytes from the start of a file. Returns their number, or -1 with errno set. No
 * copy of the bytes, which may be a secret, stays in a buffer.
 */
QP_MUST_CHECK ssize_t file_read_start(const char *path, char *bytes, size_t size);

#endif

/* Reads small files, such as those that hold keys. Thread-safe; blocks. */
#ifndef QUIPU_BASE_FILE_H
#define QUIPU_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

/* Reads up to `size` bytes from the start of a file. Returns how many bytes it has read, or -1 with
 * errno set. The bytes may be a secret, so the function turns off the buffer of stdio, which would
 * keep a copy of the bytes. */
QP_MUST_CHECK ssize_t file_read_start(const char *path, char *bytes, size_t size);

/* Returns whether every user of the machine may write to the file. */
bool file_is_anyones(const char *path);

/* The printf format of the message about a file for which file_is_anyones() returns true. Both
 * arguments are the path. */
#define FILE_IS_ANYONES "everybody on this machine may write to %s; run chmod o-w %s"

#endif

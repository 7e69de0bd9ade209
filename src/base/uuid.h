/* UUIDs of RFC 9562 as text. Thread-safe. */
#ifndef QUIPU_BASE_UUID_H
#define QUIPU_BASE_UUID_H

#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"

#define UUID_SIZE 37 /* 36 characters and a NUL */

/* Writes a UUID of version 4: random, from the kernel, so that two processes never draw the same
 * id. */
void uuid_random(char out[UUID_SIZE]);

/* Writes a UUID of version 5, in Quipu's own namespace: the same name always has the same UUID. */
void uuid_of_name(struct slice name, char out[UUID_SIZE]);

/* Writes a UUID of version 7. It begins with `time_us`, or with a later time if this process has
 * already used `time_us` or a later microsecond. So UUIDs of later calls in this process sort after
 * those of earlier calls. */
void uuid_of_time(int64_t time_us, char out[UUID_SIZE]);

/* Returns whether the text is a UUID in lower case, as the functions above write it. */
bool uuid_is_canonical(struct slice text);

/* If `text` is a UUID, returns a copy in lower case, allocated from `arena`. Returns any other
 * text unchanged. Some programs write UUIDs in upper case, so equal UUIDs can differ as text. */
struct slice uuid_lower(struct arena *arena, struct slice text);

#endif

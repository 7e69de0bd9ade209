/* UUIDs of RFC 9562 as text. */
#ifndef QUIPU_BASE_UUID_H
#define QUIPU_BASE_UUID_H

#include <stdint.h>

#include "base/slice.h"

#define UUID_SIZE 37 /* 36 characters and a NUL */

/* Version 4: random, from the kernel, because nothing may ever have the same id by chance. */
void uuid_random(char out[UUID_SIZE]);

/* Version 5: the same name gives the same UUID, for ever; in Quipu's own namespace. */
void uuid_of_name(struct slice name, char out[UUID_SIZE]);

/* Version 7: begins with the time, down to a quarter of a microsecond, so that later ones are
 * greater.
 */
void uuid_of_time(int64_t time_us, char out[UUID_SIZE]);

#endif

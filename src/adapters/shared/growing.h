/* Arrays that grow by one item at a time. */
#ifndef QUIPU_ADAPTERS_SHARED_GROWING_H
#define QUIPU_ADAPTERS_SHARED_GROWING_H

#include <stddef.h>

/*
 * Makes room for one more item in an array of `count` items with room for `*size`. Returns the
 * array itself, or a larger copy of it, after which it has freed the old one and updated `*size`.
 * Aborts if there is no memory. `items` may be NULL if `*size` is 0; the caller frees the array
 * with free().
 */
void *growing_reserve(void *items, size_t count, size_t *size, size_t item_size);

#endif

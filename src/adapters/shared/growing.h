/* Arrays to which items are added one at a time. */
#ifndef QUIPU_ADAPTERS_SHARED_GROWING_H
#define QUIPU_ADAPTERS_SHARED_GROWING_H

#include <stddef.h>

/*
 * Ensures that an array that has `count` items can hold one more item. `*size` is the capacity of
 * the array, in items. If the array is full, moves it to a larger block, frees the old block and
 * updates `*size`. Returns the array. Aborts if there is no memory. `items` may be NULL if `*size`
 * is 0; the caller frees the array with free().
 */
void *growing_reserve(void *items, size_t count, size_t *size, size_t item_size);

#endif

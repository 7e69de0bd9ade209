/* Finds the struct that contains a member. */
#ifndef QUIPU_BASE_CONTAINER_H
#define QUIPU_BASE_CONTAINER_H

#include <stddef.h>

/*
 * Returns the `type` whose `member` is at `pointer`. Does not compile if `pointer` does not have
 * the type of the member.
 */
#define CONTAINER_OF(pointer, type, member)                                                        \
	((type *)(void *)((char *)(1 ? (pointer) : &((type *)0)->member) - offsetof(type, member)))

#endif

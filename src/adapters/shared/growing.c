#include "adapters/shared/growing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define FIRST_SIZE 16

void *growing_reserve(void *items, size_t count, size_t *size, size_t item_size)
{
	void *larger;

	assert(count <= *size);
	if (count < *size)
		return items;
	*size = *size ? *size * 2 : FIRST_SIZE;
	larger = qp_calloc(*size, item_size);
	if (count > 0)
		memcpy(larger, items, count * item_size);
	free(items);
	return larger;
}

/*
 * A table on a terminal: columns as wide as their widest cell, control characters escaped. Memory
 * is the arena's.
 */
#ifndef QUIPU_CLI_TABLE_H
#define QUIPU_CLI_TABLE_H

#include <stdio.h>

#include "base/arena.h"
#include "base/slice.h"

#define TABLE_COLUMNS 6

struct table {
	struct arena *arena;
	struct slice (*rows)[TABLE_COLUMNS];
	size_t count;
	size_t size;
};

/* The cells are copied and escaped; one that is empty is shown as "-". */
void table_add(struct table *table, const struct slice cells[TABLE_COLUMNS]);

/* Prints the first `rows` rows. */
void table_print(const struct table *table, size_t rows, FILE *out);

#endif

/*
 * A table for the terminal: each column is as wide as its widest cell, and control characters are
 * escaped. Its memory comes from the arena that the caller sets in struct table.
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

/* Adds a row. Copies and escapes the cells, and shows an empty cell as "-". */
void table_add(struct table *table, const struct slice cells[TABLE_COLUMNS]);

/* Prints the first `rows` rows. */
void table_print(const struct table *table, size_t rows, FILE *out);

#endif

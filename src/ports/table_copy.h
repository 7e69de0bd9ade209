/*
 * Describes the tables of a store by name, and their rows as cells, for `quipu copy`, which copies
 * the tables to another engine. Both engines use the same names for tables and columns; where the
 * engines differ in types (times, truth values, UUIDs), the target converts the values.
 */
#ifndef QUIPU_PORTS_TABLE_COPY_H
#define QUIPU_PORTS_TABLE_COPY_H

#include <stdint.h>

#include "base/slice.h"

#define TABLE_COLUMNS_MAX 48

/* A table of the store whose tables are copied. */
struct table_facts {
	const char *name;
	const char *columns[TABLE_COLUMNS_MAX];
	size_t column_count;
	int64_t rows;
	/* the largest id that the table ever assigned by itself; 0 if the table assigns no ids */
	int64_t last_id;
};

enum cell_kind { CELL_NULL, CELL_INTEGER, CELL_TEXT, CELL_BLOB };

/* A value of a row; valid until the next row is read. */
struct cell {
	enum cell_kind kind;
	int64_t integer;
	struct slice bytes; /* the bytes of a text or blob */
};

enum table_step { TABLE_ROW, TABLE_END, TABLE_FAILED };

/* A checksum of a table that does not depend on the order of its rows: the number of rows, and the
 * sum of the hashes of all rows. */
struct table_sum {
	int64_t rows;
	uint64_t hash; /* modulo 2^63 */
};

#endif

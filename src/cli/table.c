#include "cli/table.h"

#include "base/text.h"

#define GAP 2

void table_add(struct table *table, const struct slice cells[TABLE_COLUMNS])
{
	if (table->count == table->size) {
		size_t size = table->size == 0 ? 64 : table->size * 2;

		table->rows = arena_grow(table->arena, table->rows,
			table->size * sizeof(*table->rows), size * sizeof(*table->rows));
		table->size = size;
	}
	for (size_t i = 0; i < TABLE_COLUMNS; i++) {
		struct buffer cell = buffer_make(table->arena, cells[i].len + 1);

		text_escape_log(&cell, cells[i].len > 0 ? cells[i] : slice_of("-"));
		table->rows[table->count][i] = buffer_slice(&cell);
	}
	table->count++;
}

/* Returns the number of characters in `text`, which may be less than the number of bytes. */
static int width_of(struct slice text)
{
	int width = 0;

	for (size_t i = 0; i < text.len; i++)
		width += ((unsigned char)text.data[i] & 0xc0) != 0x80;
	return width;
}

void table_print(const struct table *table, size_t rows, FILE *out)
{
	int widths[TABLE_COLUMNS] = {0};

	for (size_t row = 0; row < rows; row++) {
		for (size_t i = 0; i < TABLE_COLUMNS; i++) {
			int width = width_of(table->rows[row][i]);

			widths[i] = width > widths[i] ? width : widths[i];
		}
	}
	for (size_t row = 0; row < rows; row++) {
		for (size_t i = 0; i < TABLE_COLUMNS; i++) {
			struct slice cell = table->rows[row][i];
			bool last = i == TABLE_COLUMNS - 1;

			fprintf(out, "%.*s%*s", (int)cell.len, cell.data,
				last ? 0 : widths[i] - width_of(cell) + GAP, "");
		}
		fputc('\n', out);
	}
}

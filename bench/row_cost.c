/*
 * What changing rows in batches costs PostgreSQL, without HTTP: one connection runs
 * `UPDATE … FROM unnest(…)` over ROWS random items of ITEMS, sorted, again and again. It is the
 * statement of the adapter but for the bounds. The table `row_cost` must exist; see row_cost.py.
 *
 *     row_cost CONNECTION SECONDS ROWS ITEMS binary|text      how the two arrays travel
 *
 * Prints the number of changed rows and of transactions.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ITEMS_MAX 10000000
#define ROWS_MAX 1000
#define OID_INT8 20
#define OID_TEXT 25
#define ELEMENT_BYTES_MAX 24 /* of an id or a number, with its length or its comma */

/* An array as a parameter, in one of PostgreSQL's two formats. */
struct array {
	char bytes[32 + ROWS_MAX * ELEMENT_BYTES_MAX];
	size_t len;
};

static void add(struct array *array, const void *data, size_t len)
{
	memcpy(array->bytes + array->len, data, len);
	array->len += len;
}

static void add_int4(struct array *array, uint32_t value)
{
	uint32_t wire = htonl(value);

	add(array, &wire, sizeof(wire));
}

/* One dimension, no NULLs, from index 1. */
static void begin_binary(struct array *array, uint32_t element, uint32_t count)
{
	const uint32_t head[] = {1, 0, element, count, 1};

	array->len = 0;
	for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
		add_int4(array, head[i]);
}

static void write_binary(struct array arrays[2], const int *items, size_t count)
{
	uint64_t one = htobe64(1);
	char id[ELEMENT_BYTES_MAX];

	begin_binary(&arrays[0], OID_TEXT, (uint32_t)count);
	begin_binary(&arrays[1], OID_INT8, (uint32_t)count);
	for (size_t i = 0; i < count; i++) {
		size_t len = (size_t)snprintf(id, sizeof(id), "item-%08d", items[i]);

		add_int4(&arrays[0], (uint32_t)len);
		add(&arrays[0], id, len);
		add_int4(&arrays[1], sizeof(one));
		add(&arrays[1], &one, sizeof(one));
	}
}

static void write_text(struct array arrays[2], const int *items, size_t count)
{
	char id[ELEMENT_BYTES_MAX];

	arrays[0].len = arrays[1].len = 0;
	for (size_t i = 0; i < count; i++) {
		int len = snprintf(id, sizeof(id), "%citem-%08d", i == 0 ? '{' : ',', items[i]);

		add(&arrays[0], id, (size_t)len);
		add(&arrays[1], i == 0 ? "{1" : ",1", 2);
	}
	add(&arrays[0], "}", 2); /* with the NUL that libpq needs */
	add(&arrays[1], "}", 2);
}

static int compare(const void *left, const void *right)
{
	return *(const int *)left - *(const int *)right;
}

/* Fills `items` with distinct items in order, as a batch of the adapter has them. */
static void choose(int *items, size_t count, long item_count)
{
	static char chosen[ITEMS_MAX];

	for (size_t i = 0; i < count;) {
		int item = (int)(random() % item_count);

		if (chosen[item])
			continue;
		chosen[item] = 1;
		items[i++] = item;
	}
	for (size_t i = 0; i < count; i++)
		chosen[items[i]] = 0;
	qsort(items, count, sizeof(items[0]), compare);
}

static void fail(PGconn *connection)
{
	fprintf(stderr, "row_cost: %s", PQerrorMessage(connection));
	exit(1);
}

static PGconn *connect_and_prepare(const char *where)
{
	PGconn *connection = PQconnectdb(where);
	PGresult *result;

	if (PQstatus(connection) != CONNECTION_OK)
		fail(connection);
	result = PQprepare(connection, "add",
		"UPDATE row_cost AS c "
		"SET current_value = c.current_value + a.sum, last_updated_at = now() "
		"FROM unnest($1::text[], $2::int8[]) WITH ORDINALITY AS a(item_id, sum, n) "
		"WHERE c.item_id = a.item_id RETURNING a.n, c.current_value",
		0, NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fail(connection);
	PQclear(result);
	return connection;
}

static void change(PGconn *connection, const struct array arrays[2], int format, int rows)
{
	const char *values[] = {arrays[0].bytes, arrays[1].bytes};
	const int lengths[] = {(int)arrays[0].len, (int)arrays[1].len};
	const int formats[] = {format, format};
	PGresult *result = PQexecPrepared(connection, "add", 2, values, lengths, formats, format);

	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != rows)
		fail(connection);
	PQclear(result);
}

int main(int argc, char **argv)
{
	static struct array arrays[2];
	int items[ROWS_MAX];
	long transactions = 0, item_count;
	int format, rows;
	PGconn *connection;
	time_t end;

	rows = argc == 6 ? atoi(argv[3]) : 0;
	item_count = argc == 6 ? atol(argv[4]) : 0;
	if (rows < 1 || rows > ROWS_MAX || item_count < rows || item_count > ITEMS_MAX) {
		fprintf(stderr, "usage: row_cost CONNECTION SECONDS ROWS ITEMS binary|text\n");
		return 2;
	}
	format = strcmp(argv[5], "binary") == 0;
	connection = connect_and_prepare(argv[1]);
	srandom((unsigned)PQbackendPID(connection));
	for (end = time(NULL) + atoi(argv[2]); time(NULL) < end; transactions++) {
		choose(items, (size_t)rows, item_count);
		if (format)
			write_binary(arrays, items, (size_t)rows);
		else
			write_text(arrays, items, (size_t)rows);
		change(connection, arrays, format, rows);
	}
	printf("%ld %ld\n", transactions * rows, transactions);
	PQfinish(connection);
	return 0;
}

/* Binary parameters and results: PostgreSQL's wire formats for array, int4, int8, text, bytea. */
#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>

#include "adapters/store/postgres/postgres_internal.h"

static void add_int4(struct buffer *bytes, int32_t value)
{
	uint32_t wire = htobe32((uint32_t)value);

	buffer_bytes(bytes, &wire, sizeof(wire));
}

static void add_int8(struct buffer *bytes, int64_t value)
{
	uint64_t wire = htobe64((uint64_t)value);

	buffer_bytes(bytes, &wire, sizeof(wire));
}

struct pg_array pg_array_of(struct pg_session *session, Oid element, size_t count)
{
	struct pg_array array = {.bytes = buffer_make(&session->arena, 20 + count * 24)};

	add_int4(&array.bytes, 1); /* dimensions */
	add_int4(&array.bytes, 0); /* no flags, because the server looks for NULLs itself */
	add_int4(&array.bytes, (int32_t)element);
	add_int4(&array.bytes, (int32_t)count);
	add_int4(&array.bytes, 1); /* lower bound */
	return array;
}

void pg_arrays_of(struct pg_session *session, const Oid *elements, size_t column_count,
	size_t count, struct pg_array *columns)
{
	for (size_t i = 0; i < column_count; i++)
		columns[i] = pg_array_of(session, elements[i], count);
}

void pg_array_bytes(struct pg_array *array, const void *data, size_t len)
{
	add_int4(&array->bytes, (int32_t)len);
	buffer_bytes(&array->bytes, data, len);
}

void pg_array_text(struct pg_array *array, struct slice text)
{
	pg_array_bytes(array, text.data, text.len);
}

void pg_array_int8(struct pg_array *array, int64_t value)
{
	add_int4(&array->bytes, 8);
	add_int8(&array->bytes, value);
}

void pg_array_int4(struct pg_array *array, int32_t value)
{
	add_int4(&array->bytes, 4);
	add_int4(&array->bytes, value);
}

void pg_array_null(struct pg_array *array)
{
	add_int4(&array->bytes, -1);
}

struct pg_param pg_param_array(const struct pg_array *array)
{
	return (struct pg_param){.data = array->bytes.data, .len = (int)array->bytes.len};
}

struct pg_param pg_param_int8(struct pg_session *session, int64_t value)
{
	struct buffer bytes = buffer_make(&session->arena, 8);

	add_int8(&bytes, value);
	return (struct pg_param){.data = bytes.data, .len = 8};
}

/* Never passes a null pointer, for which libpq would send NULL instead of the empty string. */
struct pg_param pg_param_text(struct slice text)
{
	return (struct pg_param){.data = text.data ? text.data : "", .len = (int)text.len};
}

int64_t pg_int8(const PGresult *result, int row, int column)
{
	uint64_t wire;

	assert(PQgetlength(result, row, column) == sizeof(wire));
	memcpy(&wire, PQgetvalue(result, row, column), sizeof(wire));
	return (int64_t)be64toh(wire);
}

int32_t pg_int4(const PGresult *result, int row, int column)
{
	uint32_t wire;

	assert(PQgetlength(result, row, column) == sizeof(wire));
	memcpy(&wire, PQgetvalue(result, row, column), sizeof(wire));
	return (int32_t)be32toh(wire);
}

bool pg_bool(const PGresult *result, int row, int column)
{
	assert(PQgetlength(result, row, column) == 1);
	return PQgetvalue(result, row, column)[0] != 0;
}

struct slice pg_slice(const PGresult *result, int row, int column)
{
	return slice_make(
		PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column));
}

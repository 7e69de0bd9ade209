/*
 * Every value adds to the digest a letter for the type of the value, the length of the value if it
 * has one, and its contents. So different values never add the same bytes. Canonical JSON (RFC
 * 8785) would not be suitable for hashing, because it does not keep integers above 2^53 exact.
 */
#include "base/json_digest.h"

#include <math.h>
#include <stdlib.h>

/* 2^53. Below it, a double without a fraction stands for exactly one integer and is hashed as that
 * integer. From 2^53 on, several integers share one double. */
#define EXACT_MAX 9007199254740992.0

static void add_letter(struct digest *digest, char letter)
{
	digest_add(digest, slice_make(&letter, 1));
}

/* Adds the letter of a type and the 64 bits at `bits`, which are a number or a length. */
static void add_bits(struct digest *digest, char letter, const void *bits)
{
	char text[1 + sizeof(uint64_t)] = {letter};

	memcpy(text + 1, bits, sizeof(uint64_t));
	digest_add(digest, slice_make(text, sizeof(text)));
}

static void add_size(struct digest *digest, char letter, size_t size)
{
	uint64_t number = size;

	add_bits(digest, letter, &number);
}

static void add_text(struct digest *digest, struct slice text)
{
	add_size(digest, 's', text.len);
	digest_add(digest, text);
}

static void add_integer(struct digest *digest, int64_t number)
{
	add_bits(digest, 'i', &number);
}

static void add_real(struct digest *digest, double number)
{
	if (fabs(number) < EXACT_MAX && number == trunc(number))
		add_integer(digest, (int64_t)number);
	else
		add_bits(digest, 'r', &number);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_object(struct digest *digest, json_t *object, struct arena *scratch)
{
	size_t count = json_object_size(object), at = 0;
	const char **names = arena_array(scratch, const char *, count);
	const char *name;
	json_t *value;

	json_object_foreach(object, name, value)
	{
		names[at++] = name;
	}
	if (count > 1)
		qsort(names, count, sizeof(*names), compare_names);
	add_size(digest, 'o', count);
	for (size_t i = 0; i < count; i++) {
		add_text(digest, slice_of(names[i]));
		json_digest(digest, json_object_get(object, names[i]), scratch);
	}
}

static void add_array(struct digest *digest, json_t *array, struct arena *scratch)
{
	size_t count = json_array_size(array);

	add_size(digest, 'a', count);
	for (size_t i = 0; i < count; i++)
		json_digest(digest, json_array_get(array, i), scratch);
}

void json_digest(struct digest *digest, json_t *value, struct arena *scratch)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		add_object(digest, value, scratch);
		break;
	case JSON_ARRAY:
		add_array(digest, value, scratch);
		break;
	case JSON_STRING:
		add_text(digest, slice_make(json_string_value(value), json_string_length(value)));
		break;
	case JSON_INTEGER:
		add_integer(digest, json_integer_value(value));
		break;
	case JSON_REAL:
		add_real(digest, json_real_value(value));
		break;
	case JSON_TRUE:
		add_letter(digest, 't');
		break;
	case JSON_FALSE:
		add_letter(digest, 'f');
		break;
	case JSON_NULL:
		add_letter(digest, 'n');
		break;
	}
}

#include "base/uuid.h"

#include <ctype.h>
#include <stdatomic.h>

#include "base/digest.h"
#include "base/random.h"

/* The namespace must never change, because a retried request would then get a different id. */
static const unsigned char namespace[16] = {0x5b, 0x1d, 0x0c, 0x6e, 0x8a, 0x42, 0x4f, 0x19, 0x9c,
	0x3d, 0x71, 0xe6, 0x2f, 0xa0, 0xd4, 0x58};

static void write_uuid(unsigned char bytes[16], int version, char out[UUID_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	char *p = out;

	bytes[6] = (unsigned char)((bytes[6] & 0x0f) | version << 4);
	bytes[8] = (unsigned char)((bytes[8] & 0x3f) | 0x80);
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = digits[bytes[i] >> 4];
		*p++ = digits[bytes[i] & 15];
	}
	*p = '\0';
}

void uuid_random(char out[UUID_SIZE])
{
	unsigned char bytes[16];

	random_bytes(bytes, sizeof(bytes));
	write_uuid(bytes, 4, out);
}

void uuid_of_name(struct slice name, char out[UUID_SIZE])
{
	unsigned char digest[SHA1_SIZE];

	digest_sha1(slice_make(namespace, sizeof(namespace)), name, digest);
	write_uuid(digest, 5, out);
}

/* Returns `time_us` if it is later than every time returned before. Otherwise returns the
 * microsecond after the last returned time. */
static int64_t next_time_us(int64_t time_us)
{
	static _Atomic int64_t last_us;
	int64_t last = atomic_load(&last_us);
	int64_t next;

	do {
		next = time_us > last ? time_us : last + 1;
	} while (!atomic_compare_exchange_weak(&last_us, &last, next));
	return next;
}

void uuid_of_time(int64_t wanted_us, char out[UUID_SIZE])
{
	unsigned char bytes[16];
	int64_t time_us = next_time_us(wanted_us);
	uint64_t ms = (uint64_t)(time_us / 1000);
	/* the part of `time_us` below a millisecond, in units of 1/4096 ms */
	unsigned fraction = (unsigned)(time_us % 1000) * 4096 / 1000;

	random_bytes(bytes, sizeof(bytes));
	for (int i = 0; i < 6; i++)
		bytes[i] = (unsigned char)(ms >> (40 - 8 * i));
	bytes[6] = (unsigned char)(fraction >> 8);
	bytes[7] = (unsigned char)fraction;
	write_uuid(bytes, 7, out);
}

/* Returns whether the text consists of 8-4-4-4-12 hexadecimal digits. */
static bool has_form(struct slice text)
{
	if (text.len != UUID_SIZE - 1)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (is_dash ? text.data[i] != '-' : !isxdigit((unsigned char)text.data[i]))
			return false;
	}
	return true;
}

bool uuid_is_canonical(struct slice text)
{
	for (size_t i = 0; i < text.len; i++) {
		if (isupper((unsigned char)text.data[i]))
			return false;
	}
	return has_form(text);
}

struct slice uuid_lower(struct arena *arena, struct slice text)
{
	char *lower;

	if (!has_form(text))
		return text;
	lower = arena_alloc(arena, text.len);
	for (size_t i = 0; i < text.len; i++)
		lower[i] = (char)tolower((unsigned char)text.data[i]);
	return slice_make(lower, text.len);
}

#include "base/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"

#define FORM "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx"

_Static_assert(sizeof(FORM) == TRACEPARENT_LEN + 1, "FORM has the wrong length");

static bool is_zero(const char *digits, size_t len)
{
	return strspn(digits, "0") >= len;
}

bool trace_is_valid(struct slice traceparent)
{
	char text[TRACEPARENT_LEN + 1] = "";

	if (traceparent.len != TRACEPARENT_LEN)
		return false;
	memcpy(text, traceparent.data, TRACEPARENT_LEN);
	for (size_t i = 0; i < TRACEPARENT_LEN; i++) {
		bool is_digit = text[i] != '\0' && strchr("0123456789abcdef", text[i]);

		if (FORM[i] == 'x' ? !is_digit : text[i] != '-')
			return false;
	}
	return memcmp(text, "ff", 2) != 0 && !is_zero(text + 3, 32) && !is_zero(text + 36, 16);
}

void trace_new(char out[TRACEPARENT_LEN + 1])
{
	unsigned char ids[24];
	char *p = out + sprintf(out, "00-");

	random_bytes(ids, sizeof(ids));
	ids[0] |= 1; /* an id of only zeros is not valid */
	ids[16] |= 1;
	for (size_t i = 0; i < sizeof(ids); i++)
		p += sprintf(p, i == 16 ? "-%02x" : "%02x", ids[i]);
	memcpy(p, "-01", sizeof("-01"));
}

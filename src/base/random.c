#include "base/random.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

void random_bytes(void *out, size_t len)
{
	char *p = out;

	while (len > 0) {
		ssize_t got = getrandom(p, len, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			perror("quipu: getrandom");
			abort();
		}
		p += got;
		len -= (size_t)got;
	}
}

void dice_init(struct dice *dice)
{
	random_bytes(&dice->state, sizeof(dice->state));
}

uint64_t dice_next(struct dice *dice)
{
	uint64_t z = dice->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

uint64_t dice_below(struct dice *dice, uint64_t bound)
{
	assert(bound > 0);
	return (uint64_t)((unsigned __int128)dice_next(dice) * bound >> 64);
}

void dice_hex_id(struct dice *dice, char out[33])
{
	static const char digits[] = "0123456789abcdef";

	for (int word = 0; word < 2; word++) {
		uint64_t bits = dice_next(dice);

		for (int i = 0; i < 16; i++)
			out[word * 16 + i] = digits[bits >> (60 - 4 * i) & 15];
	}
	out[32] = '\0';
}

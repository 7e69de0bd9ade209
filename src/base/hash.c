#include "base/hash.h"

#include "base/random.h"

static uint64_t seed[2];

struct sip {
	uint64_t a, b, c, d;
};

void hash_seed(void)
{
	random_bytes(seed, sizeof(seed));
}

static uint64_t rotate(uint64_t value, int bits)
{
	return value << bits | value >> (64 - bits);
}

static void sip_round(struct sip *s)
{
	s->a += s->b;
	s->c += s->d;
	s->b = rotate(s->b, 13) ^ s->a;
	s->d = rotate(s->d, 16) ^ s->c;
	s->a = rotate(s->a, 32);
	s->c += s->b;
	s->a += s->d;
	s->b = rotate(s->b, 17) ^ s->c;
	s->d = rotate(s->d, 21) ^ s->a;
	s->c = rotate(s->c, 32);
}

static void sip_word(struct sip *s, uint64_t word)
{
	s->d ^= word;
	sip_round(s);
	s->a ^= word;
}

uint64_t hash_bytes(struct slice bytes)
{
	struct sip s = {
		.a = seed[0] ^ 0x736f6d6570736575,
		.b = seed[1] ^ 0x646f72616e646f6d,
		.c = seed[0] ^ 0x6c7967656e657261,
		.d = seed[1] ^ 0x7465646279746573,
	};
	uint64_t last = (uint64_t)bytes.len << 56;
	size_t tail = bytes.len % 8;
	uint64_t word;

	for (size_t i = 0; i + 8 <= bytes.len; i += 8) {
		memcpy(&word, bytes.data + i, 8);
		sip_word(&s, word);
	}
	for (size_t i = 0; i < tail; i++)
		last |= (uint64_t)(unsigned char)bytes.data[bytes.len - tail + i] << (8 * i);
	sip_word(&s, last);
	s.c ^= 0xff;
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	return s.a ^ s.b ^ s.c ^ s.d;
}

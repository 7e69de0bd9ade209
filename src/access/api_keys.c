/*
 * The key file holds only the SHA-256 of each secret. A plain digest is enough because `quipu keys
 * new` draws secrets of 256 random bits: nobody can guess such a secret, and a slow password hash
 * would slow down every request. One wrong line makes the whole file unusable, so that a typing
 * error never leaves a server with half of its keys.
 */
#include "access/api_keys.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access/roles.h"
#include "base/arena.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"

#define ID_MAX 64
#define LINE_MAX_SIZE 1024
#define KEYS_MAX 4096
#define SCOPES_MAX 16
#define SECRETS_PER_ID 2
#define SECRET_BYTES 32
#define HEX_SIZE (2 * SHA256_SIZE + 1)

static const char id_rule[] = "an id has 1 to 64 characters of a-z, 0-9, - and .";
static const char scopes_rule[] = "scopes are external, internal or admin, each with an optional "
				  ":role, separated by commas";

struct scope {
	enum access access;
	struct slice role; /* {NULL, 0} for all roles */
};

struct api_key {
	struct slice id;
	unsigned char digest[SHA256_SIZE];
	struct scope scopes[SCOPES_MAX];
	size_t scope_count;
};

struct key_ring {
	struct arena arena; /* holds the keys and their texts */
	struct api_key *keys;
	size_t count;
	size_t size;                       /* how many entries `keys` has room for */
	unsigned char digest[SHA256_SIZE]; /* a digest of all lines that hold keys */
};

/* ---- reading ----------------------------------------------------------------------------- */

/* Error messages name `file` and `line`, and are written to `why`. */
struct reading {
	const char *file;
	size_t line;
	char *why;
};

static bool wrong(const struct reading *reading, const char *what)
{
	snprintf(reading->why, KEYS_WHY_SIZE, "%s, line %zu: %s", reading->file, reading->line,
		what);
	return false;
}

static void write_unreadable(const struct reading *reading)
{
	snprintf(reading->why, KEYS_WHY_SIZE, "the API key file %s cannot be read: %s",
		reading->file, strerror(errno));
}

/* Cuts the next word off `*rest`. Returns an empty slice at the end. */
static struct slice next_word(struct slice *rest)
{
	size_t begin = 0, end;

	while (begin < rest->len && strchr(" \t\r\n", rest->data[begin]))
		begin++;
	for (end = begin; end < rest->len && !strchr(" \t\r\n", rest->data[end]);)
		end++;
	*rest = slice_make(rest->data + end, rest->len - end);
	return slice_make(rest->data - (end - begin), end - begin);
}

static bool is_id(struct slice id)
{
	for (size_t i = 0; i < id.len; i++) {
		char c = id.data[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'))
			return false;
	}
	return id.len > 0 && id.len <= ID_MAX;
}

static bool read_digest(struct slice hex, unsigned char digest[SHA256_SIZE])
{
	if (hex.len != (size_t)2 * SHA256_SIZE)
		return false;
	for (size_t i = 0; i < SHA256_SIZE; i++) {
		int high = text_hex_digit(hex.data[2 * i]),
		    low = text_hex_digit(hex.data[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		digest[i] = (unsigned char)(high * 16 + low);
	}
	return true;
}

/* Reads "internal" or "internal:counts". */
static bool read_scope(struct arena *arena, struct slice text, struct scope *scope)
{
	struct slice rest = text, name = slice_cut(&rest, ':');

	scope->role = (struct slice){0};
	if (rest.data) {
		if (!role_find(rest))
			return false;
		scope->role = arena_copy(arena, rest);
	}
	for (enum access access = ACCESS_EXTERNAL; access <= ACCESS_ADMIN; access++) {
		scope->access = access;
		if (slice_is(name, access_name(access)))
			return true;
	}
	return false;
}

static bool read_scopes(struct arena *arena, struct slice list, struct api_key *key)
{
	while (list.data) {
		struct slice text = slice_cut(&list, ',');

		if (key->scope_count == SCOPES_MAX ||
			!read_scope(arena, text, &key->scopes[key->scope_count++]))
			return false;
	}
	return key->scope_count > 0;
}

static size_t secrets_of(const struct key_ring *ring, struct slice id)
{
	size_t count = 0;

	for (size_t i = 0; i < ring->count; i++)
		count += slice_equal(ring->keys[i].id, id);
	return count;
}

static void add_key(struct key_ring *ring, const struct api_key *key)
{
	if (ring->count == ring->size) {
		size_t size = ring->size == 0 ? 8 : ring->size * 2;

		ring->keys = arena_grow(&ring->arena, ring->keys, ring->size * sizeof(*ring->keys),
			size * sizeof(*ring->keys));
		ring->size = size;
	}
	ring->keys[ring->count++] = *key;
}

static void add_to_digest(
	struct key_ring *ring, struct slice id, struct slice hex, struct slice scopes)
{
	const struct slice parts[] = {
		slice_make((const char *)ring->digest, SHA256_SIZE), id, hex, scopes};

	digest_parts(parts, 4, ring->digest);
}

static bool read_key(struct key_ring *ring, struct slice rest, const struct reading *reading)
{
	struct slice id = next_word(&rest), hex = next_word(&rest), scopes = next_word(&rest);
	struct api_key key = {.id = arena_copy(&ring->arena, id)};

	if (!is_id(id))
		return wrong(reading, id_rule);
	if (!read_digest(hex, key.digest))
		return wrong(reading, "the id must be followed by the SHA-256 of the secret in 64 "
				      "hex digits; quipu keys new prints such a line");
	if (!read_scopes(&ring->arena, scopes, &key))
		return wrong(reading, scopes_rule);
	if (next_word(&rest).len > 0)
		return wrong(reading, "there is unexpected text after the scopes");
	if (secrets_of(ring, id) == SECRETS_PER_ID)
		return wrong(reading, "an id may have two secrets at most, the old and the new");
	if (ring->count == KEYS_MAX)
		return wrong(reading, "there are too many keys");
	add_key(ring, &key);
	add_to_digest(ring, id, hex, scopes);
	return true;
}

static bool read_line(struct key_ring *ring, struct slice rest, const struct reading *reading)
{
	struct slice text = slice_cut(&rest, '#');
	struct slice after = text;

	return next_word(&after).len == 0 || read_key(ring, text, reading);
}

static bool read_lines(struct key_ring *ring, FILE *in, struct reading *reading)
{
	char line[LINE_MAX_SIZE];

	while (fgets(line, sizeof(line), in)) {
		struct slice text = slice_of(line);

		reading->line++;
		if (!feof(in) && (text.len == 0 || text.data[text.len - 1] != '\n'))
			return wrong(reading, "the line is too long or contains a NUL");
		if (!read_line(ring, text, reading))
			return false;
	}
	if (ferror(in)) {
		write_unreadable(reading);
		return false;
	}
	if (ring->count == 0)
		return wrong(reading, "the file has no keys; create one with quipu keys new");
	return true;
}

struct key_ring *key_ring_read(const char *file, char *why)
{
	struct reading reading = {.file = file, .why = why};
	struct key_ring *ring;
	FILE *in = fopen(file, "re");
	bool good;

	if (!in) {
		write_unreadable(&reading);
		return NULL;
	}
	if (file_is_anyones(file)) {
		snprintf(why, KEYS_WHY_SIZE, FILE_IS_ANYONES, file, file);
		fclose(in);
		return NULL;
	}
	ring = qp_calloc(1, sizeof(*ring));
	arena_init(&ring->arena, 4096);
	good = read_lines(ring, in, &reading);
	fclose(in);
	if (good)
		return ring;
	key_ring_free(ring);
	return NULL;
}

void key_ring_free(struct key_ring *ring)
{
	arena_release(&ring->arena);
	free(ring);
}

size_t key_ring_count(const struct key_ring *ring)
{
	return ring->count;
}

/* ---- creating ---------------------------------------------------------------------------- */

static void write_hex(const unsigned char bytes[SHA256_SIZE], char out[HEX_SIZE])
{
	for (size_t i = 0; i < SHA256_SIZE; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static bool is_acceptable(const char *id, const char *scopes, char *why)
{
	struct api_key key = {0};
	struct arena arena;
	const char *broken = NULL;

	arena_init(&arena, 1024);
	if (!is_id(slice_of(id)))
		broken = id_rule;
	else if (!read_scopes(&arena, slice_of(scopes), &key))
		broken = scopes_rule;
	arena_release(&arena);
	if (broken)
		snprintf(why, KEYS_WHY_SIZE, "%s", broken);
	return !broken;
}

bool key_make(const char *id, const char *scopes, struct new_key *key, char *why)
{
	unsigned char random[SECRET_BYTES], digest[SHA256_SIZE];
	char secret[HEX_SIZE], hash[HEX_SIZE];

	_Static_assert(SECRET_BYTES == SHA256_SIZE, "write_hex() takes SHA256_SIZE bytes");
	if (!is_acceptable(id, scopes, why))
		return false;
	random_bytes(random, sizeof(random));
	write_hex(random, secret);
	digest_sha256(slice_of(secret), digest);
	write_hex(digest, hash);
	snprintf(key->line, sizeof(key->line), "%s %s %s", id, hash, scopes);
	snprintf(key->shown, sizeof(key->shown), KEY_PREFIX "%s_%s", id, secret);
	OPENSSL_cleanse(random, sizeof(random));
	OPENSSL_cleanse(secret, sizeof(secret));
	return true;
}

bool key_ring_is_same(const struct key_ring *a, const struct key_ring *b)
{
	return memcmp(a->digest, b->digest, SHA256_SIZE) == 0;
}

/* ---- looking up -------------------------------------------------------------------------- */

bool key_is_shown(struct slice shown)
{
	return slice_starts_with(shown, KEY_PREFIX);
}

const struct api_key *key_ring_find(const struct key_ring *ring, struct slice shown)
{
	const struct api_key *found = NULL;
	unsigned char digest[SHA256_SIZE];
	struct slice rest, id;

	if (!key_is_shown(shown))
		return NULL;
	rest = slice_make(shown.data + strlen(KEY_PREFIX), shown.len - strlen(KEY_PREFIX));
	id = slice_cut(&rest, '_');
	if (rest.len == 0)
		return NULL;
	digest_sha256(rest, digest);
	for (size_t i = 0; i < ring->count; i++) {
		const struct api_key *key = &ring->keys[i];

		if (slice_equal(key->id, id) &&
			CRYPTO_memcmp(key->digest, digest, SHA256_SIZE) == 0)
			found = key;
	}
	return found;
}

struct slice api_key_id(const struct api_key *key)
{
	return key->id;
}

bool api_key_opens(const struct api_key *key, enum access access, const char *role)
{
	for (size_t i = 0; i < key->scope_count; i++) {
		const struct scope *scope = &key->scopes[i];

		if (scope->access >= access &&
			(!scope->role.data || (role && slice_is(scope->role, role))))
			return true;
	}
	return false;
}

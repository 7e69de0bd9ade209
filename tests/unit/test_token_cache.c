/* Tokens that are known to be valid: for how long, how many, and only as long as their key. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "access/guard.h"
#include "access/token_cache.h"
#include "base/clock.h"
#include "token_maker.h"
#include "waiting.h"

#define NOW_US 1000000
#define LATER_US 9000000
#define THREADS 4
#define ROUNDS 20000

static struct token_cache *cache;
static struct arena arena;

static int set_up(void **state)
{
	(void)state;
	cache = token_cache_new();
	arena_init(&arena, 4096);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	token_cache_free(cache);
	arena_release(&arena);
	return 0;
}

/* ---- helpers ----------------------------------------------------------------------------- */

/* Writes a digest. All digests with the same `set` compete for the same places. */
static void digest_of(unsigned set, unsigned number, unsigned char digest[SHA256_SIZE])
{
	memset(digest, 0x5a, SHA256_SIZE);
	digest[0] = (unsigned char)(set >> 8);
	digest[1] = (unsigned char)set;
	memcpy(digest + 2, &number, sizeof(number));
}

static struct slice name_of(unsigned set, unsigned number, char text[64])
{
	snprintf(text, 64, "user-%u-%u", set, number);
	return slice_of(text);
}

static void put(unsigned set, unsigned number, int64_t ends_us)
{
	unsigned char digest[SHA256_SIZE];
	char text[64];
	struct token_claims claims = {
		.subject = name_of(set, number, text),
		.ends_us = ends_us,
	};

	digest_of(set, number, digest);
	token_cache_put(cache, digest, &claims);
}

/* Returns whether the token is known. A token that is found must have its own subject. */
static bool knows(struct arena *memory, unsigned set, unsigned number, int64_t now_us)
{
	unsigned char digest[SHA256_SIZE];
	struct token_claims claims;
	char text[64];

	digest_of(set, number, digest);
	if (!token_cache_find(cache, memory, digest, now_us, &claims))
		return false;
	must(slice_equal(claims.subject, name_of(set, number, text)), "a token has its subject");
	must(claims.ends_us > now_us, "a token that is known has not ended");
	return true;
}

/* ---- tests ------------------------------------------------------------------------------- */

static void a_token_is_known_until_it_ends(void **state)
{
	(void)state;
	assert_false(knows(&arena, 1, 1, NOW_US));
	put(1, 1, LATER_US);
	assert_true(knows(&arena, 1, 1, NOW_US));
	assert_true(knows(&arena, 1, 1, LATER_US - 1));
	assert_false(knows(&arena, 1, 2, NOW_US));
	assert_false(knows(&arena, 1, 1, LATER_US));
	assert_false(knows(&arena, 1, 1, NOW_US)); /* once expired, it is forgotten */
}

static void digests_that_differ_in_their_last_bit_are_two(void **state)
{
	unsigned char digest[SHA256_SIZE];
	struct token_claims claims;

	(void)state;
	put(1, 1, LATER_US);
	digest_of(1, 1, digest);
	digest[SHA256_SIZE - 1] ^= 1;
	assert_false(token_cache_find(cache, &arena, digest, NOW_US, &claims));
}

static void the_longest_subject_has_room(void **state)
{
	unsigned char digest[SHA256_SIZE] = {7};
	char name[TOKEN_SUBJECT_MAX] = {'n'};
	struct token_claims claims = {slice_make(name, sizeof(name)), LATER_US}, found;

	(void)state;
	token_cache_put(cache, digest, &claims);
	assert_true(token_cache_find(cache, &arena, digest, NOW_US, &found));
	assert_true(slice_equal(found.subject, claims.subject));
}

static void where_there_is_no_room_the_least_used_goes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < TOKEN_CACHE_WAYS; i++)
		put(3, i, LATER_US);
	assert_true(knows(&arena, 3, 0, NOW_US));
	put(3, 100, LATER_US);
	assert_false(knows(&arena, 3, 1, NOW_US));
	for (unsigned i = 0; i < TOKEN_CACHE_WAYS; i++)
		assert_int_equal(knows(&arena, 3, i, NOW_US), i != 1);
	assert_true(knows(&arena, 3, 100, NOW_US));
}

static void one_that_has_ended_makes_room(void **state)
{
	(void)state;
	for (unsigned i = 0; i < TOKEN_CACHE_WAYS; i++)
		put(3, i, i == 2 ? NOW_US : LATER_US);
	assert_false(knows(&arena, 3, 2, NOW_US));
	put(3, 100, LATER_US);
	for (unsigned i = 0; i < TOKEN_CACHE_WAYS; i++)
		assert_int_equal(knows(&arena, 3, i, NOW_US), i != 2);
	assert_true(knows(&arena, 3, 100, NOW_US));
}

static void putting_one_twice_takes_one_place(void **state)
{
	(void)state;
	for (unsigned i = 0; i < TOKEN_CACHE_WAYS; i++) {
		put(3, i, LATER_US);
		put(3, i, LATER_US);
	}
	for (unsigned i = 0; i < TOKEN_CACHE_WAYS; i++)
		assert_true(knows(&arena, 3, i, NOW_US));
}

static void however_many_come_the_last_are_known(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100000; i++)
		put(i % 65536, i, LATER_US);
	for (unsigned i = 99999; i > 99999 - 4096; i--) {
		assert_true(knows(&arena, i % 65536, i, NOW_US));
		arena_reset(&arena);
	}
	assert_false(knows(&arena, 0, 0, NOW_US));
}

static void *put_and_find(void *context)
{
	unsigned seed = *(unsigned *)context;
	struct arena own;

	arena_init(&own, 1024);
	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned set = (unsigned)rand_r(&seed) % 4, number = (unsigned)rand_r(&seed) % 6;

		if (!knows(&own, set, number, NOW_US))
			put(set, number, LATER_US);
		arena_reset(&own);
	}
	arena_release(&own);
	return NULL;
}

static void threads_that_share_places_never_mix_them_up(void **state)
{
	pthread_t threads[THREADS];
	unsigned seeds[THREADS];

	(void)state;
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = i + 1;
		assert_int_equal(pthread_create(&threads[i], NULL, put_and_find, &seeds[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* ---- the guard that uses it -------------------------------------------------------------- */

struct site {
	struct guard *guard;
	struct token_maker maker;
	struct slice token; /* a token of "alice" */
	int64_t ends_us;
	_Atomic bool is_over;
	_Atomic unsigned admitted, refused;
};

static void open_site(struct site *site)
{
	struct guard_config config = {
		.keys_file = "",
		.tokens = {.algorithm = "HS256", .issuer = "", .audience = ""},
	};
	int64_t exp = clock_wall_us(&clock_system) / 1000000 + 24 * 3600;
	char why[GUARD_WHY_SIZE], claims[128];

	memset(site, 0, sizeof(*site));
	site->ends_us = exp * 1000000;
	token_maker_init(&site->maker, "HS256");
	config.tokens.key_file = site->maker.file;
	site->guard = guard_new(&config, why);
	assert_non_null(site->guard);
	snprintf(claims, sizeof(claims), "{\"sub\":\"alice\",\"exp\":%lld}", (long long)exp);
	site->token = token_maker_make(
		&site->maker, &arena, slice_of("{\"alg\":\"HS256\"}"), slice_of(claims));
}

static void close_site(struct site *site)
{
	guard_free(site->guard);
	token_maker_release(&site->maker);
}

static void write_secret(const struct site *site, const char *secret)
{
	FILE *out = fopen(site->maker.file, "we");

	assert_non_null(out);
	fputs(secret, out);
	fclose(out);
}

static enum status ask(struct site *site, struct arena *memory, struct slice token)
{
	struct buffer header = buffer_make(memory, token.len + 16);
	struct access_question question = {.access = ACCESS_USER, .role = "dialogs"};
	struct caller caller;
	const char *why;
	enum status status;

	buffer_text(&header, "Bearer ");
	buffer_add(&header, token);
	question.authorization = buffer_slice(&header);
	status = guard_check(site->guard, memory, &question, &caller, &why);
	if (status == STATUS_OK) {
		must(caller.kind == CALLER_USER && slice_is(caller.name, "alice"), "it is alice");
		must(caller.ends_us == site->ends_us, "the token ends when it says so");
	}
	return status;
}

static void what_is_known_goes_with_its_key(void **state)
{
	char why[GUARD_WHY_SIZE];
	struct site site;

	(void)state;
	open_site(&site);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ask(&site, &arena, site.token), STATUS_OK);
	write_secret(&site, "too short");
	assert_false(guard_reload(site.guard, why));
	assert_int_equal(ask(&site, &arena, site.token), STATUS_OK);
	write_secret(&site, "another secret, which is long enough as well");
	assert_int_equal(ask(&site, &arena, site.token), STATUS_OK);
	assert_true(guard_reload(site.guard, why));
	assert_int_equal(ask(&site, &arena, site.token), STATUS_UNAUTHENTICATED);
	write_secret(&site, MAKER_SECRET);
	assert_true(guard_reload(site.guard, why));
	assert_int_equal(ask(&site, &arena, site.token), STATUS_OK);
	close_site(&site);
}

static void a_bad_token_is_never_known(void **state)
{
	struct site site;
	struct slice bad;

	(void)state;
	open_site(&site);
	bad = arena_copy(&arena, site.token);
	((char *)(uintptr_t)bad.data)[bad.len - 5] ^= 1;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ask(&site, &arena, bad), STATUS_UNAUTHENTICATED);
		assert_int_equal(ask(&site, &arena, site.token), STATUS_OK);
	}
	close_site(&site);
}

static void *ask_on(void *context)
{
	struct site *site = context;
	struct arena own;

	arena_init(&own, 4096);
	while (!site->is_over) {
		if (ask(site, &own, site->token) == STATUS_OK)
			site->admitted++;
		else
			site->refused++;
		arena_reset(&own);
	}
	arena_release(&own);
	return NULL;
}

struct awaited_count {
	_Atomic unsigned *count;
	unsigned before;
};

static bool has_grown(void *context)
{
	const struct awaited_count *awaited = context;

	return *awaited->count != awaited->before;
}

/* Before the next key is read, somebody must have been admitted with each of the two keys. */
static void keys_change_while_others_ask(void **state)
{
	pthread_t threads[THREADS];
	char why[GUARD_WHY_SIZE];
	struct site site;

	(void)state;
	open_site(&site);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_on, &site), 0);
	for (unsigned i = 0; i < 40; i++) {
		bool is_right = i % 2;
		struct awaited_count awaited = {is_right ? &site.admitted : &site.refused, 0};

		write_secret(
			&site, is_right ? MAKER_SECRET : "another secret, long enough as well");
		assert_true(guard_reload(site.guard, why));
		awaited.before = *awaited.count;
		wait_until(has_grown, &awaited, "somebody who asks with the new key");
	}
	site.is_over = true;
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	close_site(&site);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_token_is_known_until_it_ends),
		TEST(digests_that_differ_in_their_last_bit_are_two),
		TEST(the_longest_subject_has_room),
		TEST(where_there_is_no_room_the_least_used_goes),
		TEST(one_that_has_ended_makes_room),
		TEST(putting_one_twice_takes_one_place),
		TEST(however_many_come_the_last_are_known),
		TEST(threads_that_share_places_never_mix_them_up),
		TEST(what_is_known_goes_with_its_key),
		TEST(a_bad_token_is_never_known),
		TEST(keys_change_while_others_ask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* API keys: what a file may contain, whom it admits, and that a new key works. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "access/api_keys.h"
#include "access/roles.h"

/* SHA-256 of "one", "two", "three" and "", as sha256sum prints them. */
#define ONE "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
#define TWO "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
#define THREE "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static char why[KEYS_WHY_SIZE];
static char file[] = "/tmp/quipu-keys-XXXXXX";

static int make_file(void **state)
{
	int fd = mkstemp(file);

	(void)state;
	assert_true(fd >= 0);
	return close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(file);
}

static struct key_ring *read_bytes(const char *bytes, size_t len)
{
	FILE *out = fopen(file, "we");

	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, len, out), len);
	assert_int_equal(fclose(out), 0);
	why[0] = '\0';
	return key_ring_read(file, why);
}

/* Returns NULL if the text was refused; `why` then has the reason. */
static struct key_ring *read_text(const char *text)
{
	return read_bytes(text, strlen(text));
}

static struct key_ring *read_good(const char *text)
{
	struct key_ring *ring = read_text(text);

	if (!ring)
		fail_msg("refused: %s", why);
	return ring;
}

/* Returns the id of the key that opens, or "" if none does. */
static const char *find(const struct key_ring *ring, const char *shown)
{
	const struct api_key *key = key_ring_find(ring, slice_of(shown));

	return key ? api_key_id(key).data : "";
}

static void assert_refused(const char *text, int line, const char *part)
{
	char start[128];
	struct key_ring *ring = read_text(text);

	snprintf(start, sizeof(start), "%s, line %d: ", file, line);
	if (ring)
		fail_msg("taken: %s", text);
	assert_contains(slice_of(why), start);
	assert_contains(slice_of(why), part);
}

/* ---- the file ---- */

static void every_mistake_is_told_with_its_line(void **state)
{
	static const struct {
		const char *text;
		int line;
		const char *part;
	} cases[] = {
		{"Billing " ONE " external\n", 1, "an id has"},
		{"a_b " ONE " external\n", 1, "an id has"},
		{"b\xc3\xbc " ONE " external\n", 1, "an id has"},
		{"\xef\xbb\xbf"
		 "a " ONE " external\n",
			1, "an id has"},
		{"# first\n\na\n", 3, "SHA-256"},
		{"a secret external\n", 1, "SHA-256"},
		{"a " ONE "0 external\n", 1, "SHA-256"},
		{"a g692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed external\n", 1,
			"SHA-256"},
		{"a " ONE "\n", 1, "scopes"},
		{"a " ONE " root\n", 1, "scopes"},
		{"a " ONE " public\n", 1, "scopes"},
		{"a " ONE " user\n", 1, "scopes"},
		{"a " ONE " Admin\n", 1, "scopes"},
		{"a " ONE " external,\n", 1, "scopes"},
		{"a " ONE " ,external\n", 1, "scopes"},
		{"a " ONE " external:\n", 1, "scopes"},
		{"a " ONE " external:nobody\n", 1, "scopes"},
		{"a " ONE " external:counts:pots\n", 1, "scopes"},
		{"a " ONE " :counts\n", 1, "scopes"},
		{"a " ONE " external internal\n", 1, "unexpected text after the scopes"},
		{"a " ONE " external\nb " TWO " external x\n", 2,
			"unexpected text after the scopes"},
		{"", 0, "no key"},
		{"# only words\n\n", 2, "no key"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_refused(cases[i].text, cases[i].line, cases[i].part);
}

static void what_is_wrong_is_told_without_what_stands_there(void **state)
{
	(void)state;
	assert_null(read_text("a qk_a_topsecret external\n"));
	assert_null(strstr(why, "topsecret"));
}

static void an_id_has_64_characters_at_most(void **state)
{
	char id[66], text[256];

	(void)state;
	memset(id, 'x', sizeof(id));
	id[64] = '\0';
	snprintf(text, sizeof(text), "%s " ONE " external\n", id);
	key_ring_free(read_good(text));
	id[64] = 'x';
	id[65] = '\0';
	snprintf(text, sizeof(text), "%s " ONE " external\n", id);
	assert_refused(text, 1, "an id has");
}

static void there_are_sixteen_scopes_at_most(void **state)
{
	char text[512] = "a " ONE " external";

	(void)state;
	for (int i = 1; i < 16; i++)
		strcat(text, ",external");
	key_ring_free(read_good(text));
	strcat(text, ",external");
	assert_refused(text, 1, "scopes");
}

static void a_line_that_is_too_long_or_has_a_nul_is_refused(void **state)
{
	static const char nul[] = "a " ONE " external\0,admin\nb " ONE " external\n";
	char text[2048];

	(void)state;
	memset(text, '#', sizeof(text));
	memcpy(text, "a " ONE " external\n", 76);
	text[sizeof(text) - 1] = '\0';
	assert_refused(text, 2, "too long");
	assert_null(read_bytes(nul, sizeof(nul) - 1));
	assert_contains(slice_of(why), "line 1: ");
}

static void comments_blank_lines_tabs_and_crlf_are_taken(void **state)
{
	struct key_ring *ring = read_good("# keys\r\n"
					  "\r\n"
					  "  \t \n"
					  "a\t" ONE "\texternal\r\n"
					  "  b   " TWO "   internal   # of the shop\n"
					  "c " THREE " admin#the boss's");

	(void)state;
	assert_int_equal(key_ring_count(ring), 3);
	assert_string_equal(find(ring, "qk_a_one"), "a");
	assert_string_equal(find(ring, "qk_b_two"), "b");
	assert_string_equal(find(ring, "qk_c_three"), "c");
	key_ring_free(ring);
}

static void hex_digits_may_be_capitals(void **state)
{
	struct key_ring *ring = read_good(
		"a 7692C3AD3540BB803C020B3AEE66CD8887123234EA0C6E7143C0ADD73FF431ED external\n");

	(void)state;
	assert_string_equal(find(ring, "qk_a_one"), "a");
	key_ring_free(ring);
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
	(void)state;
	assert_null(key_ring_read("/nonexistent/keys", why));
	assert_contains(slice_of(why), "/nonexistent/keys cannot be read");
	assert_null(key_ring_read("/", why));
	assert_contains(slice_of(why), "cannot be read");
}

static void there_are_4096_keys_at_most(void **state)
{
	FILE *out = fopen(file, "we");

	(void)state;
	assert_non_null(out);
	for (int i = 0; i < 4097; i++)
		fprintf(out, "k%d " ONE " external\n", i);
	fclose(out);
	assert_null(key_ring_read(file, why));
	assert_contains(slice_of(why), "line 4097: there are too many keys");
}

/* ---- rotation ---- */

static void an_id_may_have_two_secrets_and_both_open(void **state)
{
	struct key_ring *ring = read_good("a " ONE " external\n"
					  "b " THREE " external\n"
					  "a " TWO " internal\n");
	const struct api_key *old = key_ring_find(ring, slice_of("qk_a_one"));
	const struct api_key *new = key_ring_find(ring, slice_of("qk_a_two"));

	(void)state;
	assert_non_null(old);
	assert_non_null(new);
	assert_slice(api_key_id(new), "a");
	assert_false(api_key_opens(old, ACCESS_INTERNAL, NULL));
	assert_true(api_key_opens(new, ACCESS_INTERNAL, NULL));
	key_ring_free(ring);
}

static void a_third_secret_of_an_id_is_refused(void **state)
{
	(void)state;
	assert_refused("a " ONE " external\na " TWO " external\n#\na " THREE " external\n", 4,
		"two secrets at most");
}

/* ---- who is let in ---- */

static void only_the_whole_key_of_its_own_id_opens(void **state)
{
	static const char *const wrong[] = {"", "qk_", "qk__", "qk_a", "qk_a_", "qk__one", "one",
		"a_one", "qk_a_On", "qk_a_on", "qk_a_onee", "qk_a_One", "qk_a_one ", " qk_a_one",
		"qk_a__one", "qk_A_one", "QK_a_one", "qk_b_one", "qk_a_two", "qk_c_one",
		("qk_a_" ONE), "qk_ab_one", "qk_a_one_", "qk_a_qk_a_one", "qk-a-one"};
	struct key_ring *ring = read_good("a " ONE " external\nb " TWO " external\n");

	(void)state;
	assert_string_equal(find(ring, "qk_a_one"), "a");
	assert_string_equal(find(ring, "qk_b_two"), "b");
	for (size_t i = 0; i < COUNT_OF(wrong); i++) {
		if (key_ring_find(ring, slice_of(wrong[i])))
			fail_msg("\"%s\" opens", wrong[i]);
	}
	assert_null(key_ring_find(ring, slice_make("qk_a_one\0", 9)));
	key_ring_free(ring);
}

static void an_empty_secret_opens_nothing_even_where_its_hash_stands_there(void **state)
{
	struct key_ring *ring = read_good("a " EMPTY " admin\n");

	(void)state;
	assert_string_equal(find(ring, "qk_a_"), "");
	assert_string_equal(find(ring, "qk_a"), "");
	key_ring_free(ring);
}

static void what_looks_like_a_key_begins_with_its_prefix(void **state)
{
	(void)state;
	assert_true(key_is_shown(slice_of("qk_a_one")));
	assert_true(key_is_shown(slice_of("qk_")));
	assert_false(key_is_shown(slice_of("qk")));
	assert_false(key_is_shown(slice_of("QK_a_one")));
	assert_false(key_is_shown(slice_of("eyJhbGciOiJIUzI1NiJ9.e30.x")));
	assert_false(key_is_shown((struct slice){0}));
}

/* ---- scopes ---- */

static void a_scope_includes_those_before_it_and_a_role_narrows_it(void **state)
{
	static const struct {
		const char *scopes;
		const char *role;
		bool external, internal, admin;
	} cases[] = {
		{"external", "counts", true, false, false},
		{"external", NULL, true, false, false},
		{"internal", "counts", true, true, false},
		{"admin", "counts", true, true, true},
		{"admin", NULL, true, true, true},
		{"external:counts", "counts", true, false, false},
		{"external:counts", "pots", false, false, false},
		{"external:counts", NULL, false, false, false},
		{"internal:counts,external", "counts", true, true, false},
		{"internal:counts,external", "pots", true, false, false},
		{"external,admin:pots", "pots", true, true, true},
		{"external,admin:pots", "counts", true, false, false},
		{"external,admin:pots", NULL, true, false, false},
		{"external:counts,external:pots", "pots", true, false, false},
		{"external:counts,external:pots", "gateway", false, false, false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char text[256];
		struct key_ring *ring;
		const struct api_key *key;

		snprintf(text, sizeof(text), "a " ONE " %s\n", cases[i].scopes);
		ring = read_good(text);
		key = key_ring_find(ring, slice_of("qk_a_one"));
		assert_non_null(key);
		if (api_key_opens(key, ACCESS_EXTERNAL, cases[i].role) != cases[i].external ||
			api_key_opens(key, ACCESS_INTERNAL, cases[i].role) != cases[i].internal ||
			api_key_opens(key, ACCESS_ADMIN, cases[i].role) != cases[i].admin)
			fail_msg("row %zu", i);
		key_ring_free(ring);
	}
}

static void every_role_can_be_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROLE_COUNT; i++) {
		char text[256];

		snprintf(text, sizeof(text), "a " ONE " internal:%s\n", role_name(i));
		key_ring_free(read_good(text));
	}
}

/* ---- new keys ---- */

static void a_new_key_opens_with_its_own_line(void **state)
{
	struct new_key key;
	struct key_ring *ring;

	(void)state;
	assert_true(key_make("billing-2.eu", "admin,internal:counts", &key, why));
	ring = read_good(key.line);
	assert_string_equal(find(ring, key.shown), "billing-2.eu");
	assert_true(
		api_key_opens(key_ring_find(ring, slice_of(key.shown)), ACCESS_ADMIN, "counts"));
	key_ring_free(ring);
}

static void the_line_of_a_new_key_does_not_have_its_secret(void **state)
{
	struct new_key key;

	(void)state;
	assert_true(key_make("a", "external", &key, why));
	assert_true(slice_starts_with(slice_of(key.shown), "qk_a_"));
	assert_int_equal(strlen(key.shown), strlen("qk_a_") + 64);
	assert_null(strstr(key.line, key.shown + strlen("qk_a_")));
}

static void no_two_new_keys_are_alike(void **state)
{
	struct new_key one, other;

	(void)state;
	assert_true(key_make("a", "external", &one, why));
	assert_true(key_make("a", "external", &other, why));
	assert_string_not_equal(one.shown, other.shown);
	assert_string_not_equal(one.line, other.line);
}

static void the_longest_new_key_fits(void **state)
{
	char id[65], scopes[512] = "external:notifications";
	struct new_key key;
	struct key_ring *ring;

	(void)state;
	memset(id, 'x', sizeof(id));
	id[64] = '\0';
	for (int i = 1; i < 16; i++)
		strcat(scopes, ",external:notifications");
	assert_true(key_make(id, scopes, &key, why));
	ring = read_good(key.line);
	assert_string_equal(find(ring, key.shown), id);
	key_ring_free(ring);
}

static void what_a_file_would_not_take_is_not_made(void **state)
{
	static const char *const ids[] = {"", "A", "a b", "a_b", "a#", "a\n", "../a"};
	static const char *const scopes[] = {
		"", "root", "external ", "external\nb", "external #", "external,", "admin:all"};
	struct new_key key;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(ids); i++) {
		assert_false(key_make(ids[i], "external", &key, why));
		assert_contains(slice_of(why), "an id has");
	}
	for (size_t i = 0; i < COUNT_OF(scopes); i++) {
		assert_false(key_make("a", scopes[i], &key, why));
		assert_contains(slice_of(why), "scopes are");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_mistake_is_told_with_its_line),
		cmocka_unit_test(what_is_wrong_is_told_without_what_stands_there),
		cmocka_unit_test(an_id_has_64_characters_at_most),
		cmocka_unit_test(there_are_sixteen_scopes_at_most),
		cmocka_unit_test(a_line_that_is_too_long_or_has_a_nul_is_refused),
		cmocka_unit_test(comments_blank_lines_tabs_and_crlf_are_taken),
		cmocka_unit_test(hex_digits_may_be_capitals),
		cmocka_unit_test(a_file_that_cannot_be_read_is_named),
		cmocka_unit_test(there_are_4096_keys_at_most),
		cmocka_unit_test(an_id_may_have_two_secrets_and_both_open),
		cmocka_unit_test(a_third_secret_of_an_id_is_refused),
		cmocka_unit_test(only_the_whole_key_of_its_own_id_opens),
		cmocka_unit_test(an_empty_secret_opens_nothing_even_where_its_hash_stands_there),
		cmocka_unit_test(what_looks_like_a_key_begins_with_its_prefix),
		cmocka_unit_test(a_scope_includes_those_before_it_and_a_role_narrows_it),
		cmocka_unit_test(every_role_can_be_named),
		cmocka_unit_test(a_new_key_opens_with_its_own_line),
		cmocka_unit_test(the_line_of_a_new_key_does_not_have_its_secret),
		cmocka_unit_test(no_two_new_keys_are_alike),
		cmocka_unit_test(the_longest_new_key_fits),
		cmocka_unit_test(what_a_file_would_not_take_is_not_made),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}

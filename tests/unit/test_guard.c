/*
 * Who may call what: a table of what a route requires, what is configured, what the request sends,
 * and the answer.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "access/guard.h"

/* SHA-256 of "one" to "four". */
#define ONE "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
#define TWO "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
#define THREE "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f"
#define FOUR "04efaf080f5a3e74e1c29d1ca6a48569382cbbcd324e8d59d2b83ef21c039f00"

static const char keys_text[] = "ext " ONE " external\n"
				"int " TWO " internal\n"
				"adm " THREE " admin\n"
				"own " FOUR " internal:counts\n";

#define EXTERNAL "Bearer qk_ext_one"
#define INTERNAL "Bearer qk_int_two"
#define ADMIN "Bearer qk_adm_three"
#define COUNTS_ONLY "Bearer qk_own_four"
#define WRONG "Bearer qk_ext_two"

#define JWT_SECRET "a secret of at least thirty-two bytes, for the test"

enum configured { NOTHING = 0, KEYS = 1, TOKENS = 2, BOTH = KEYS | TOKENS };

static char keys_file[] = "/tmp/quipu-guard-keys-XXXXXX";
static char jwt_file[] = "/tmp/quipu-guard-jwt-XXXXXX";
static char token[512], users_token[600]; /* a token of the user "anna", alone and as a header */
static char why_text[GUARD_WHY_SIZE];

/* ---- files and tokens ---- */

static void write_file(const char *path, const char *text)
{
	FILE *out = fopen(path, "we");

	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fclose(out), 0);
}

static void add_base64url(char *out, size_t size, const unsigned char *bytes, int len)
{
	char coded[256];
	size_t end = strlen(out);

	EVP_EncodeBlock((unsigned char *)coded, bytes, len);
	for (char *c = coded; *c && *c != '='; c++) {
		assert_true(end + 1 < size);
		out[end++] = (char)(*c == '+' ? '-' : *c == '/' ? '_' : *c);
	}
	out[end] = '\0';
}

static void make_token(char *out, size_t size, const char *claims)
{
	static const char header[] = "{\"alg\":\"HS256\"}";
	unsigned char signature[EVP_MAX_MD_SIZE];
	unsigned len;

	out[0] = '\0';
	add_base64url(out, size, (const unsigned char *)header, (int)strlen(header));
	strcat(out, ".");
	add_base64url(out, size, (const unsigned char *)claims, (int)strlen(claims));
	assert_non_null(HMAC(EVP_sha256(), JWT_SECRET, (int)strlen(JWT_SECRET),
		(const unsigned char *)out, strlen(out), signature, &len));
	strcat(out, ".");
	add_base64url(out, size, signature, (int)len);
}

static int make_files(void **state)
{
	int keys = mkstemp(keys_file), jwt = mkstemp(jwt_file);

	(void)state;
	assert_true(keys >= 0 && jwt >= 0);
	close(keys);
	close(jwt);
	write_file(jwt_file, JWT_SECRET);
	make_token(token, sizeof(token), "{\"sub\":\"anna\",\"exp\":4000000000}");
	snprintf(users_token, sizeof(users_token), "Bearer %s", token);
	return 0;
}

static int remove_files(void **state)
{
	(void)state;
	return unlink(keys_file) + unlink(jwt_file);
}

static struct guard *make_guard(enum configured configured)
{
	struct guard_config config = {
		.keys_file = configured & KEYS ? keys_file : "",
		.tokens = {.key_file = configured & TOKENS ? jwt_file : "",
			.algorithm = "HS256",
			.issuer = "",
			.audience = ""},
	};
	struct guard *guard;

	if (configured == NOTHING)
		return NULL;
	write_file(keys_file, keys_text);
	write_file(jwt_file, JWT_SECRET);
	guard = guard_new(&config, why_text);
	if (!guard)
		fail_msg("%s", why_text);
	return guard;
}

static struct slice shown_of(const char *text)
{
	return text ? slice_of(text) : (struct slice){0};
}

/* ---- the table ---- */

#define USER_TOKEN ""   /* stands for users_token, which is not a constant */
#define QUERY_TOKEN "?" /* the same, in the query */

struct guard_case {
	enum access access;
	enum configured configured;
	const char *shown; /* NULL for no header */
	const char *user;  /* the user in the path */
	enum status status;
	const char *caller; /* the caller's name, or "" for anyone */
};

#define NO STATUS_UNAUTHENTICATED
#define NOT_THIS STATUS_FORBIDDEN

/* The route belongs to counts. */
static const struct guard_case cases[] = {
	/* Nothing is configured: everything is open, whatever the request sends. */
	{ACCESS_ADMIN, NOTHING, NULL, "", STATUS_OK, ""},
	{ACCESS_ADMIN, NOTHING, WRONG, "", STATUS_OK, ""},
	{ACCESS_OWNER, NOTHING, NULL, "anna", STATUS_OK, ""},
	/* Public routes never check. */
	{ACCESS_PUBLIC, BOTH, NULL, "", STATUS_OK, ""},
	{ACCESS_PUBLIC, BOTH, WRONG, "", STATUS_OK, ""},
	/* Keys. */
	{ACCESS_EXTERNAL, KEYS, NULL, "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, "", "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, WRONG, "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, EXTERNAL, "", STATUS_OK, "ext"},
	{ACCESS_EXTERNAL, KEYS, INTERNAL, "", STATUS_OK, "int"},
	{ACCESS_EXTERNAL, KEYS, ADMIN, "", STATUS_OK, "adm"},
	{ACCESS_EXTERNAL, KEYS, COUNTS_ONLY, "", STATUS_OK, "own"},
	{ACCESS_INTERNAL, KEYS, EXTERNAL, "", NOT_THIS, ""},
	{ACCESS_INTERNAL, KEYS, INTERNAL, "", STATUS_OK, "int"},
	{ACCESS_INTERNAL, KEYS, ADMIN, "", STATUS_OK, "adm"},
	{ACCESS_INTERNAL, KEYS, COUNTS_ONLY, "", STATUS_OK, "own"},
	{ACCESS_ADMIN, KEYS, NULL, "", NO, ""},
	{ACCESS_ADMIN, KEYS, EXTERNAL, "", NOT_THIS, ""},
	{ACCESS_ADMIN, KEYS, INTERNAL, "", NOT_THIS, ""},
	{ACCESS_ADMIN, KEYS, COUNTS_ONLY, "", NOT_THIS, ""},
	{ACCESS_ADMIN, KEYS, ADMIN, "", STATUS_OK, "adm"},
	/* How the header may be written. */
	{ACCESS_EXTERNAL, KEYS, "bearer qk_ext_one", "", STATUS_OK, "ext"},
	{ACCESS_EXTERNAL, KEYS, "  BEARER   qk_ext_one  ", "", STATUS_OK, "ext"},
	{ACCESS_EXTERNAL, KEYS, "qk_ext_one", "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, "Bearer", "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, "Bearerqk_ext_one", "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, "Basic qk_ext_one", "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, "Bearer Bearer qk_ext_one", "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, "Bearer qk_ext_one, Bearer qk_ext_one", "", NO, ""},
	{ACCESS_EXTERNAL, KEYS, QUERY_TOKEN, "", NO, ""},
	/* A user's token is not a key, and a key is not a user's token. */
	{ACCESS_EXTERNAL, BOTH, USER_TOKEN, "", NO, ""},
	{ACCESS_ADMIN, BOTH, USER_TOKEN, "", NO, ""},
	{ACCESS_USER, BOTH, ADMIN, "", NO, ""},
	{ACCESS_USER, BOTH, USER_TOKEN, "", STATUS_OK, "anna"},
	{ACCESS_USER, TOKENS, NULL, "", NO, ""},
	{ACCESS_USER, TOKENS, USER_TOKEN, "", STATUS_OK, "anna"},
	/* If tokens are not checked, a key that may act for all users is required. */
	{ACCESS_USER, KEYS, NULL, "", NO, ""},
	{ACCESS_USER, KEYS, EXTERNAL, "", NOT_THIS, ""},
	{ACCESS_USER, KEYS, INTERNAL, "", STATUS_OK, "int"},
	/* The owner, or a key that may read all users. */
	{ACCESS_OWNER, KEYS, NULL, "anna", NO, ""},
	{ACCESS_OWNER, KEYS, EXTERNAL, "anna", NOT_THIS, ""},
	{ACCESS_OWNER, KEYS, INTERNAL, "anna", STATUS_OK, "int"},
	{ACCESS_OWNER, BOTH, NULL, "anna", NO, ""},
	{ACCESS_OWNER, BOTH, INTERNAL, "anna", STATUS_OK, "int"},
	{ACCESS_OWNER, BOTH, EXTERNAL, "anna", NOT_THIS, ""},
	{ACCESS_OWNER, BOTH, WRONG, "anna", NO, ""},
	{ACCESS_OWNER, BOTH, USER_TOKEN, "anna", STATUS_OK, "anna"},
	{ACCESS_OWNER, BOTH, USER_TOKEN, "bert", NOT_THIS, ""},
	{ACCESS_OWNER, BOTH, USER_TOKEN, "Anna", NOT_THIS, ""},
	{ACCESS_OWNER, TOKENS, INTERNAL, "anna", NO, ""},
	{ACCESS_OWNER, TOKENS, USER_TOKEN, "anna", STATUS_OK, "anna"},
	{ACCESS_OWNER_STREAM, BOTH, QUERY_TOKEN, "anna", STATUS_OK, "anna"},
	{ACCESS_OWNER_STREAM, BOTH, QUERY_TOKEN, "bert", NOT_THIS, ""},
	/* If only tokens are configured, routes that require a key are open. */
	{ACCESS_EXTERNAL, TOKENS, NULL, "", STATUS_OK, ""},
	{ACCESS_ADMIN, TOKENS, NULL, "", STATUS_OK, ""},
};

static struct access_question question_of(const struct guard_case *row)
{
	struct access_question question = {
		.access = row->access,
		.role = "counts",
		.user = slice_of(row->user),
		.authorization = shown_of(row->shown),
	};

	if (row->shown && strcmp(row->shown, QUERY_TOKEN) == 0) {
		question.authorization = (struct slice){0};
		if (row->access == ACCESS_OWNER_STREAM)
			question.query_token = slice_of(token);
	} else if (row->shown && strcmp(row->shown, USER_TOKEN) == 0 && row->configured & TOKENS) {
		question.authorization = slice_of(users_token);
	}
	return question;
}

static void check_row(size_t row)
{
	struct access_question question = question_of(&cases[row]);
	struct guard *guard = make_guard(cases[row].configured);
	struct caller caller;
	struct arena arena;
	const char *why = NULL;
	enum status status;

	arena_init(&arena, 1024);
	status = guard_check(guard, &arena, &question, &caller, &why);
	if (status != cases[row].status)
		fail_msg("row %zu: %s", row, status_code(status));
	if (!slice_is(caller.name, cases[row].caller))
		fail_msg(
			"row %zu: the caller is %.*s", row, (int)caller.name.len, caller.name.data);
	if ((status != STATUS_OK) != (why != NULL))
		fail_msg("row %zu: a refusal says why, and nothing else does", row);
	arena_release(&arena);
	if (guard)
		guard_free(guard);
}

static void every_row_of_the_table_holds(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		check_row(i);
}

/* ---- reading again, and counting ---- */

static enum status check_key_of(struct guard *guard, const char *shown, const char *role)
{
	struct access_question question = {
		.access = ACCESS_INTERNAL, .role = role, .authorization = slice_of(shown)};
	struct caller caller;
	struct arena arena;
	const char *why;
	enum status status;

	arena_init(&arena, 1024);
	status = guard_check(guard, &arena, &question, &caller, &why);
	arena_release(&arena);
	return status;
}

static void a_key_of_one_role_opens_no_other(void **state)
{
	struct guard *guard = make_guard(KEYS);

	(void)state;
	assert_int_equal(check_key_of(guard, COUNTS_ONLY, "counts"), STATUS_OK);
	assert_int_equal(check_key_of(guard, COUNTS_ONLY, "pots"), STATUS_FORBIDDEN);
	assert_int_equal(check_key_of(guard, COUNTS_ONLY, NULL), STATUS_FORBIDDEN);
	guard_free(guard);
}

static void keys_that_were_taken_out_are_dropped_on_reload(void **state)
{
	struct guard *guard = make_guard(KEYS);

	(void)state;
	write_file(keys_file, "new " ONE " internal\n");
	assert_int_equal(check_key_of(guard, INTERNAL, "counts"), STATUS_OK);
	assert_true(guard_reload(guard, why_text));
	assert_int_equal(check_key_of(guard, INTERNAL, "counts"), STATUS_UNAUTHENTICATED);
	assert_int_equal(check_key_of(guard, "Bearer qk_new_one", "counts"), STATUS_OK);
	guard_free(guard);
}

static void a_broken_file_changes_nothing_on_reload_and_is_refused_at_start(void **state)
{
	struct guard_config config = {.keys_file = keys_file,
		.tokens = {.key_file = "", .algorithm = "", .issuer = "", .audience = ""}};
	struct guard *guard = make_guard(KEYS);

	(void)state;
	write_file(keys_file, "new " ONE " internal\nbroken\n");
	assert_false(guard_reload(guard, why_text));
	assert_contains(slice_of(why_text), "line 2");
	assert_int_equal(check_key_of(guard, INTERNAL, "counts"), STATUS_OK);
	assert_null(guard_new(&config, why_text));
	guard_free(guard);
}

static void each_file_is_read_by_itself_and_only_other_keys_make_a_new_generation(void **state)
{
	struct guard *guard = make_guard(BOTH);
	uint64_t generation = guard_generation(guard);

	(void)state;
	assert_true(guard_reload(guard, why_text));
	assert_int_equal(guard_generation(guard), generation);
	write_file(keys_file, "new " ONE " internal\n");
	write_file(jwt_file, "too short");
	assert_false(guard_reload(guard, why_text));
	assert_contains(slice_of(why_text), "--jwt-key");
	assert_int_equal(check_key_of(guard, "Bearer qk_new_one", "counts"), STATUS_OK);
	assert_int_equal(check_key_of(guard, INTERNAL, "counts"), STATUS_UNAUTHENTICATED);
	assert_int_equal(guard_generation(guard), generation + 1);
	write_file(jwt_file, JWT_SECRET " that is another");
	assert_true(guard_reload(guard, why_text));
	assert_int_equal(guard_generation(guard), generation + 2);
	guard_free(guard);
}

static void assert_metric(struct guard *guard, const char *line)
{
	struct arena arena;
	struct buffer page;

	arena_init(&arena, 4096);
	page = buffer_make(&arena, 4096);
	guard_collect(guard, &page);
	assert_contains(buffer_slice(&page), line);
	arena_release(&arena);
}

static void refusals_are_counted_by_their_reason(void **state)
{
	struct guard *guard = make_guard(BOTH);
	struct access_question question = {
		.access = ACCESS_USER, .authorization = slice_of("Bearer no.to.ken")};
	struct caller caller;
	struct arena arena;
	const char *why;

	(void)state;
	arena_init(&arena, 1024);
	assert_int_equal(
		guard_check(guard, &arena, &question, &caller, &why), STATUS_UNAUTHENTICATED);
	arena_release(&arena);
	assert_int_equal(check_key_of(guard, "", NULL), STATUS_UNAUTHENTICATED);
	assert_int_equal(check_key_of(guard, WRONG, NULL), STATUS_UNAUTHENTICATED);
	assert_int_equal(check_key_of(guard, WRONG, NULL), STATUS_UNAUTHENTICATED);
	assert_int_equal(check_key_of(guard, EXTERNAL, NULL), STATUS_FORBIDDEN);
	assert_int_equal(check_key_of(guard, INTERNAL, NULL), STATUS_OK);
	assert_metric(guard, "quipu_access_refused_total{reason=\"nothing_shown\"} 1\n");
	assert_metric(guard, "quipu_access_refused_total{reason=\"key\"} 2\n");
	assert_metric(guard, "quipu_access_refused_total{reason=\"token\"} 1\n");
	assert_metric(guard, "quipu_access_refused_total{reason=\"scope\"} 1\n");
	assert_metric(guard, "quipu_access_keys 4\n");
	guard_free(guard);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_of_the_table_holds),
		cmocka_unit_test(a_key_of_one_role_opens_no_other),
		cmocka_unit_test(keys_that_were_taken_out_are_dropped_on_reload),
		cmocka_unit_test(a_broken_file_changes_nothing_on_reload_and_is_refused_at_start),
		cmocka_unit_test(
			each_file_is_read_by_itself_and_only_other_keys_make_a_new_generation),
		cmocka_unit_test(refusals_are_counted_by_their_reason),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}

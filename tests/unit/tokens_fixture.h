/*
 * Declarations shared by the files of test_tokens: a maker of tokens for each algorithm, and their
 * checkers.
 */
#ifndef QUIPU_TESTS_TOKENS_FIXTURE_H
#define QUIPU_TESTS_TOKENS_FIXTURE_H

#include "access/tokens.h"
#include "check.h"
#include "token_maker.h"

#define NOW_S 1000000000LL
#define NOW_US (NOW_S * 1000000)
#define LEEWAY_S 30
#define GOOD_CLAIMS "{\"sub\":\"alice\",\"exp\":1000000100}"

enum { HS, RS, ES, MAKERS };

extern struct token_maker token_makers[MAKERS];
extern struct arena token_arena;

/* Called before the first test and after the last. */
void make_token_keys(void);
void drop_token_keys(void);

/* Returns a configuration for tokens of this maker, with a leeway of LEEWAY_S and any issuer and
 * audience. */
struct token_config token_config_of(const struct token_maker *maker);

/* Fail the test if the checker cannot be created. */
struct token_checker *open_token_checker(const struct token_config *config);
struct token_checker *token_checker_of(const struct token_maker *maker);

/* Returns the header of a valid token. */
struct slice token_header_of(const struct token_maker *maker);
struct slice make_token(const struct token_maker *maker, const char *claims);

/* Checks `token` and expects this fault, at NOW_S or another time; `what` names the case. */
void expect_token(const struct token_checker *checker, struct slice token,
	enum token_fault expected, const char *what);
void expect_token_at(const struct token_checker *checker, struct slice token, int64_t now_s,
	enum token_fault expected, const char *what);

/* The tests in the other files. Each returns how many tests failed. */
int run_token_key_tests(void);
int run_token_signature_tests(void);

#endif

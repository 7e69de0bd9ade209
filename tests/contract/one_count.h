/* Counts one at a time, for tests of ports/count_repository.h. */
#ifndef QUIPU_CONTRACT_ONE_COUNT_H
#define QUIPU_CONTRACT_ONE_COUNT_H

#include "engine.h"

enum status one_count_edit(
	struct engine *engine, struct slice id, enum count_edit_kind kind, int64_t value);
struct slice one_count_new(struct engine *engine, const char *name, int64_t value);
struct slice one_count_bounded(
	struct engine *engine, const char *name, int64_t value, struct count_bounds bounds);
struct count_bound one_bound(int64_t value);
void one_count_assert_bounds(
	const struct count_bounds *bounds, const struct count_bounds *expected);
struct count_row one_count_find(struct engine *engine, struct session *session, struct slice id);
void one_count_assert_value(struct engine *engine, struct slice id, int64_t value);
void one_count_assert_missing(struct engine *engine, struct slice id);
struct count_addition one_count_addition(struct slice id, int64_t sum);

/* The tests of count_model_contract.c, count_bounds_contract.c and count_list_contract.c. Return
 * how many have failed. */
int count_model_tests(void);
int count_list_tests(void);
int count_bounds_tests(void);

#endif

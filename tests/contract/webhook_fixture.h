/* A webhook and its receiver, for tests of what only a webhook does. */
#ifndef QUIPU_CONTRACT_WEBHOOK_FIXTURE_H
#define QUIPU_CONTRACT_WEBHOOK_FIXTURE_H

#include "notifier_fixture.h"

/* Slots enough for every fault at once, and time without an end, so that a receiver that answers is
 * never too late. */
extern const struct webhook_limits webhook_patient;

/* cmocka's: *state is a struct notifier_fixture with a patient webhook at its own server. */
int webhook_setup(void **state);
int webhook_teardown(void **state);

/* Sends one notice and waits for its result. */
const struct notice_result *webhook_try(struct notifier_fixture *fixture, const char *id);

/* The same, and the result must be this one. */
void webhook_assert_fate(
	struct notifier_fixture *fixture, const char *id, enum notice_fate fate, const char *error);

/* Put a notifier with other limits, or to another URL, in the place of the fixture's own. */
void webhook_limit_to(struct notifier_fixture *fixture, const struct webhook_limits *limits);
void webhook_go_to(
	struct notifier_fixture *fixture, const char *url, const struct webhook_limits *limits);

/* The request must have this header; NULL: it must not have it. */
void webhook_assert_header(
	const struct hook_request *request, const char *name, const char *expected);

#endif

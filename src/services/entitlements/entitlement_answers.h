/* Renders the answers of the entitlement service into `arena`. Pure. */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_ANSWERS_H
#define QUIPU_SERVICES_ENTITLEMENTS_ANSWERS_H

#include "ports/answer.h"
#include "ports/entitlement_repository.h"

/* Returns a 200 with the entitlement after a change. */
struct answer entitlement_answer(struct arena *arena, const struct entitlement_row *row);

/* A change that the rules refused. */
struct entitlement_refusal {
	enum status status; /* returned by a function of entitlement_rules.h */
	bool is_grant;
	const struct entitlement_row *row;
	const struct entitlement_source *source; /* NULL for a revoke of all sources */
};

/* Returns the answer to a refused change: a problem, which for a state conflict includes the
 * current entitlement. */
struct answer entitlement_answer_refused(
	struct arena *arena, const struct entitlement_refusal *refusal);

/* Returns a 200 with the entitlement and its sources, or a 404. */
struct answer entitlement_answer_look(struct arena *arena, const struct entitlement_look *look);

/* Returns a 200 with a page of a user's audit. */
struct answer entitlement_answer_audit(struct arena *arena, struct slice user_id,
	const struct entitlement_audit *lines, size_t count);

/* Returns a 200 with a page of a user's entitlements. */
struct answer entitlement_answer_list(struct arena *arena, struct slice user_id,
	const struct entitlement_row *rows, size_t count);

#endif

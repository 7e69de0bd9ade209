#include "flow/claims.h"

#include "base/log.h"

#define BACKOFF_CAP_S 60
#define US_PER_S 1000000LL

int64_t claim_backoff_us(int32_t attempt, struct dice *dice)
{
	int64_t seconds = attempt < 6 ? (int64_t)1 << attempt : BACKOFF_CAP_S;
	int64_t whole_us = seconds * US_PER_S;

	return whole_us / 2 + (int64_t)dice_below(dice, (uint64_t)whole_us);
}

void claim_conclude(struct claim *claim, enum claim_try try, int32_t attempts_max,
	struct dice *dice, struct slice error)
{
	bool is_last = claim->attempt_count + 1 >= attempts_max;

	if (try == TRY_WORKED) {
		claim->end = CLAIM_DONE;
		return;
	}
	if (try == TRY_NOT_MADE) {
		claim->end = CLAIM_RETURNED;
		return;
	}
	claim->error = error;
	if (try == TRY_AWAY) {
		claim->end = CLAIM_DELAYED;
		claim->delay_us = claim_backoff_us(0, dice);
		return;
	}
	if (try == TRY_REFUSED || (try == TRY_FAILED && is_last)) {
		claim->end = CLAIM_FAILED;
		return;
	}
	claim->end = CLAIM_RETRY;
	claim->delay_us = claim_backoff_us(claim->attempt_count, dice);
}

void claims_log_failed(const char *kind, const struct claim *claims, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct log_field fields[] = {
			{.name = "dead_letter_kind", .value = slice_of(kind)},
			{.name = "dead_letter_id", .value = claims[i].id},
			{.name = "event_type", .value = claims[i].type},
			{.name = "reason", .value = claims[i].error},
			{.name = "traceparent", .value = claims[i].trace},
		};

		if (claims[i].end != CLAIM_FAILED || !claims[i].was_ours)
			continue;
		log_line_with(LOG_WARN, "dlq", fields, sizeof(fields) / sizeof(fields[0]),
			"given up after %d attempt%s and kept as a dead letter; see quipu dlq",
			claims[i].attempt_count + 1, claims[i].attempt_count == 0 ? "" : "s");
	}
}

/* Renders the answers about counts, including refusals. Answers are allocated from the command's
 * arena. */
#ifndef QUIPU_SERVICES_COUNTS_ANSWERS_H
#define QUIPU_SERVICES_COUNTS_ANSWERS_H

#include "services/counts/count_batch.h"

/* Writes a count as the lookups return it: `{"itemId":"a","currentValue":5,…}`. */
void count_write(struct buffer *body, const struct count_row *row);

/* Returns the answer to an increase, a decrease or a reset: `{"itemId":"a","value":5}`. */
struct answer count_answer_value(const struct count_command *command, int64_t value);

struct answer count_answer_not_found(struct arena *arena, struct slice item_id);

/* Returns the answer to a command. `status` and `state` are the results of count_apply(). */
struct answer count_answer_change(const struct count_command *command, enum status status,
	const struct count_state *state, int64_t now_us);

/* Returns the results of all steps, in order. Each result is a value or a problem. */
struct answer count_answer_steps(const struct count_command *command);

/* Returns the problem that answers an atomic command whose step at `index` was refused. The problem
 * includes the index. */
struct answer count_answer_step_refused(const struct count_command *command, size_t index);

/* Like count_answer_steps(), but for a batch whose changes ran as separate commands. */
struct answer count_answer_results(struct arena *arena, struct write *const *writes, size_t count);

#endif

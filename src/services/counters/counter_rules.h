/* The rules of counters say what an event does to the state of a message and to the count. The
 * function is pure. */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_RULES_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_RULES_H

#include "ports/counter_repository.h"

/*
 * Applies an event to a message: the "read" event if `is_read` is true, otherwise the "new" event.
 * The table shows the new state of the message and the change of the count; "-" means no change.
 *
 *   state     "new" event       "read" event
 *   unknown   unread, + 1       read
 *   unread    -                 read, - 1
 *   read      -                 -
 *
 * Events may come in any order and more than once. A message counts as unread from its "new" event
 * until its "read" event, and never again. Returns true if `message` has changed and must be
 * written. Sets `*delta` to the change of the count.
 */
bool counter_apply(struct counter_message *message, bool is_read, int64_t event_us, int64_t *delta);

#endif

/* The rules of counters: what an event does to the state of a message and to the count. Pure. */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_RULES_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_RULES_H

#include "ports/counter_repository.h"

/*
 * Applies an event to a message. The effect depends on what is known about the message:
 *
 *   known     new event         read event
 *   nothing   unread, + 1       read
 *   unread    -                 read, - 1
 *   read      -                 -
 *
 * Events may come in any order and more than once. A message counts as unread from its "new" event
 * until its "read" event, and never again. Returns true if `message` has changed and must be
 * written. Sets `*delta` to the change of the count.
 */
bool counter_apply(struct counter_message *message, bool is_read, int64_t event_us, int64_t *delta);

#endif

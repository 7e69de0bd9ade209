/* What an event does to what is known of a message, and to the count. Pure. */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_RULES_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_RULES_H

#include "ports/counter_repository.h"

/*
 *   known     new               read
 *   nothing   unread, + 1       read
 *   unread    -                 read, - 1
 *   read      -                 -
 *
 * In whatever order and however often events come, a message counts from its new to its read.
 * true: `message` is changed and must be written; `*delta` is what the count changes by.
 */
bool counter_apply(struct counter_message *message, bool is_read, int64_t event_us, int64_t *delta);

#endif

#include "services/counters/counter_rules.h"

bool counter_apply(struct counter_message *message, bool is_read, int64_t event_us, int64_t *delta)
{
	*delta = 0;
	if (message->exists && (message->is_read || !is_read))
		return false;
	if (message->exists)
		*delta = -1;
	else if (!is_read)
		*delta = 1;
	message->is_read = is_read;
	message->event_us = event_us;
	return true;
}

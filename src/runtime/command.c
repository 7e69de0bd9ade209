#include "runtime/command.h"

#include <assert.h>

/* With up to this number of loops, command_list_deliver() wakes each loop once; with more loops, it
 * may wake a loop several times. */
#define LOOPS_PER_ROUND 32

struct outgoing {
	struct loop *loop;
	struct loop_task *first;
	struct loop_task *last;
};

void command_list_push(struct command_list *list, struct command *command)
{
	command->next = NULL;
	if (list->last)
		list->last->next = command;
	else
		list->first = command;
	list->last = command;
	list->count++;
	list->weight += command_weight(command);
	list->bytes += command->bytes;
}

void command_list_append(struct command_list *list, struct command_list *from)
{
	if (!from->first)
		return;
	if (list->last)
		list->last->next = from->first;
	else
		list->first = from->first;
	list->last = from->last;
	list->count += from->count;
	list->weight += from->weight;
	list->bytes += from->bytes;
	*from = (struct command_list){0};
}

struct command *command_list_pop(struct command_list *list)
{
	struct command *command = list->first;

	if (!command)
		return NULL;
	list->first = command->next;
	if (!list->first)
		list->last = NULL;
	list->count--;
	list->weight -= command_weight(command);
	list->bytes -= command->bytes;
	command->next = NULL;
	return command;
}

void command_sign(struct command *command)
{
	struct receipts *receipts = command->receipts;

	command->receipts = NULL;
	if (receipts && atomic_fetch_sub(&receipts->missing, 1) == 1)
		bell_ring(&receipts->taken);
}

static struct outgoing *outgoing_for(struct outgoing *all, struct loop *loop)
{
	size_t i = 0;

	while (i < LOOPS_PER_ROUND && all[i].loop && all[i].loop != loop)
		i++;
	if (i == LOOPS_PER_ROUND)
		i = 0;
	if (all[i].loop != loop && all[i].loop) {
		loop_post_chain(all[i].loop, all[i].first, all[i].last);
		all[i] = (struct outgoing){0};
	}
	all[i].loop = loop;
	return &all[i];
}

void command_list_deliver(struct command_list *list)
{
	struct outgoing all[LOOPS_PER_ROUND] = {0};
	struct command *command;

	while ((command = command_list_pop(list))) {
		struct outgoing *out = outgoing_for(all, command->loop);

		assert(command->answer.http_status != 0);
		if (out->last)
			out->last->next = &command->task;
		else
			out->first = &command->task;
		out->last = &command->task;
	}
	for (size_t i = 0; i < LOOPS_PER_ROUND && all[i].loop; i++)
		loop_post_chain(all[i].loop, all[i].first, all[i].last);
}

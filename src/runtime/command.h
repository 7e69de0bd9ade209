/*
 * A command is one request on its way through a lane: a loop makes it, a lane holds it, a worker
 * thread answers it, and the loop sends the answer. It has one owner at any time, and its arena
 * goes with it.
 */
#ifndef QUIPU_RUNTIME_COMMAND_H
#define QUIPU_RUNTIME_COMMAND_H

#include <stdatomic.h>
#include <stdint.h>

#include "ports/answer.h"
#include "runtime/loop.h"

struct command {
	struct loop_task task;   /* how the answer goes back; `run` is set by the maker */
	struct loop *loop;       /* where it goes back to */
	struct command *next;    /* for whoever owns it */
	struct arena *arena;     /* for the answer */
	struct slice key;        /* what it changes: commands on one key keep their order */
	uint64_t hash;           /* of the key; 0: its order does not matter, it reads */
	size_t bytes;            /* what it holds in memory, for the bound of the lane */
	int64_t deadline_ns;     /* steady time after which nobody wants the answer */
	atomic_bool client_gone; /* set by the loop, read by the worker before it starts */
	struct answer answer;
};

/* Commands in order, linked by `next`. */
struct command_list {
	struct command *first;
	struct command *last;
	size_t count;
};

void command_list_push(struct command_list *list, struct command *command);

/* Appends all of `from`, which becomes empty. */
void command_list_append(struct command_list *list, struct command_list *from);

/* The first, or NULL. */
struct command *command_list_pop(struct command_list *list);

/*
 * Sends the answers of all of `list` back, with one wake-up per loop. Each must have its answer.
 * The list is empty afterwards, and its commands belong to their loops.
 */
void command_list_deliver(struct command_list *list);

#endif

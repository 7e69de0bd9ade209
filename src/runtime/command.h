/*
 * A command is one request on its way through a lane: a loop creates it, a lane holds it, the
 * lane's consumer thread answers it, and the loop sends the answer. It has one owner at any time,
 * and its arena moves with it.
 */
#ifndef QUIPU_RUNTIME_COMMAND_H
#define QUIPU_RUNTIME_COMMAND_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ports/answer.h"
#include "runtime/bell.h"
#include "runtime/loop.h"

/*
 * The struct that a command is the first member of. A module defines one constant for each of its
 * command types and sets it when it creates the command; the address identifies the type.
 */
struct command_type {
	const char *name; /* "count_command" */
	bool is_write;    /* a struct write (flow/write.h); false: a struct read (flow/reader.h) */
};

/* Answers that may be larger are bounded in number, by readers and connections. */
#define LARGE_ANSWER 4096

struct command {
	struct loop_task task; /* carries the answer back; the creator sets `run` */
	const struct command_type *type;
	struct loop *loop;    /* the loop that sends the answer */
	struct command *next; /* for the list of the current owner */
	struct arena *arena;  /* memory for the answer */
	struct slice key;     /* the row it changes, or whose rows it reads; may be empty */
	uint64_t hash;        /* of the key, 0 without one; changes of a key keep their order */
	size_t bytes;         /* the memory that it occupies, for the limit of the lane */
	size_t weight;        /* how many changes it is, for the depth of the lane; 0 is 1 */
	int64_t deadline_ns;  /* steady time after which the client no longer waits */
	size_t answer_max;    /* the most memory that its answer takes, or less than LARGE_ANSWER */
	atomic_bool client_gone; /* the loop sets it; the consumer reads it before it starts */
	struct answer answer;
	struct receipts *receipts; /* to sign when the loop has taken the answer; may be NULL */
};

/* How many answers a consumer has delivered that their loops have not taken yet. */
struct receipts {
	atomic_size_t missing;
	struct bell taken; /* rung when none is missing */
};

/* For the loop: it has taken the answer. */
void command_sign(struct command *command);

/* Aborts unless `command` is of this type. Every cast from a command to its struct calls it. */
static inline void command_assert_type(
	const struct command *command, const struct command_type *type)
{
	assert(command->type == type);
}

static inline size_t command_weight(const struct command *command)
{
	return command->weight > 0 ? command->weight : 1;
}

static inline bool command_is_large(const struct command *command)
{
	return command->answer_max > LARGE_ANSWER;
}

/* A queue of commands, linked by `next`. */
struct command_list {
	struct command *first;
	struct command *last;
	size_t count;
};

void command_list_push(struct command_list *list, struct command *command);

/* Moves all commands of `from` to the end of `list`. */
void command_list_append(struct command_list *list, struct command_list *from);

/* Removes and returns the first command, or returns NULL if the list is empty. */
struct command *command_list_pop(struct command_list *list);

/*
 * Returns all commands of `list`, which must be answered, to their loops with one wake-up per loop.
 * Afterwards the list is empty and the loops own the commands. Any thread.
 */
void command_list_deliver(struct command_list *list);

#endif

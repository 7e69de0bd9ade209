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
 * Identifies the struct that has this command as its first member. A module defines one constant
 * for each of its command types and sets it when it creates a command; the address of the constant
 * is the identity.
 */
struct command_type {
	const char *name; /* e.g. "count_command" */
	/* true for a struct write (flow/write.h), false for a struct read (flow/reader.h) */
	bool is_write;
};

/* Readers and connections bound the number of answers that may be larger than this. */
#define LARGE_ANSWER 4096

struct command {
	struct loop_task task; /* carries the answer back; the creator sets `run` */
	const struct command_type *type;
	struct loop *loop;    /* the loop that sends the answer */
	struct command *next; /* links the list of the current owner */
	struct arena *arena;  /* memory for the answer */
	/* the row it changes, or the user whose rows it reads; may be empty */
	struct slice key;
	/* the hash of the key, or 0 if the key is empty; it chooses the lane, so changes of one key
	 * keep their order */
	uint64_t hash;
	/* the memory that it occupies; counts against the lane's limit */
	size_t bytes;
	/* how many changes it makes; counts against the lane's depth; 0 means 1 */
	size_t weight;
	int64_t deadline_ns; /* steady time after which the client no longer waits */
	/* the most memory that its answer can take; anything below LARGE_ANSWER is not counted */
	size_t answer_max;
	/* set by the loop; the consumer checks it before it starts the command */
	atomic_bool client_gone;
	struct answer answer;
	/* counts the answers that loops have not taken yet; may be NULL */
	struct receipts *receipts;
};

/* How many of a consumer's answers have been delivered and not yet taken by their loops. */
struct receipts {
	atomic_size_t missing;
	struct bell taken; /* rung when no answer is missing any more */
};

/* Called by the loop when it has taken the answer. */
void command_sign(struct command *command);

/* Aborts unless `command` has this type. Every cast from a command to its struct calls it. */
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
	size_t bytes; /* the sum of its commands' bytes */
};

void command_list_push(struct command_list *list, struct command *command);

/* Moves all commands of `from` to the end of `list`. */
void command_list_append(struct command_list *list, struct command_list *from);

/* Removes and returns the first command, or returns NULL if the list is empty. */
struct command *command_list_pop(struct command_list *list);

/*
 * Sends all commands of `list` back to their loops, with one wake-up per loop. Every command must
 * have an answer. Afterwards the list is empty and the loops own the commands. Thread-safe.
 */
void command_list_deliver(struct command_list *list);

#endif

/*
 * A command is one request on its way through a lane: a loop creates it, a lane holds it, the
 * lane's consumer thread answers it, and the loop sends the answer. A command has one owner at any
 * time, and its arena moves with it.
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
 * Identifies the type of the struct that has the command as its first member. A module defines one
 * constant for each of its command types, and points `type` to it when it creates a command. Two
 * commands have the same type if they point to the same constant.
 */
struct command_type {
	const char *name; /* e.g. "count_command" */
	/* true for a struct write (flow/write.h), false for a struct read (flow/reader.h) */
	bool is_write;
};

/* A large answer is one that may have more than LARGE_ANSWER bytes. Readers limit how many large
 * answers they look up at once, and connections limit how many they wait for at once. */
#define LARGE_ANSWER 4096

struct command {
	struct loop_task task; /* carries the answer back; the submitter sets `run` */
	const struct command_type *type;
	struct loop *loop;    /* the loop that sends the answer */
	struct command *next; /* the next command in the list of the current owner */
	struct arena *arena;  /* memory for the answer */
	/* the row that the command changes, or the user whose rows it reads; may be empty */
	struct slice key;
	/* The hash of `key`, or of another key if the command must run in the lane of that key; 0
	 * for a read without a key. The hash chooses the lane of a write, so changes of one key
	 * keep their order. */
	uint64_t hash;
	/* the memory that the command occupies; counts against the lane's limit */
	size_t bytes;
	/* how many changes the command makes; counts against the lane's depth and the size of a
	 * batch; 0 means 1 */
	size_t weight;
	int64_t deadline_ns; /* monotonic time after which the client no longer waits */
	/* the most bytes that the answer can take; the answer counts as large if `answer_max` is
	 * more than LARGE_ANSWER */
	size_t answer_max;
	/* set by the loop; the lane's consumer reads this flag before it starts the command */
	atomic_bool client_gone;
	struct answer answer;
	/* counts the answers that loops have not taken yet; may be NULL */
	struct receipts *receipts;
};

/* Counts the answers that a lane's consumer has delivered and that loops have not taken yet. */
struct receipts {
	atomic_size_t missing;
	struct bell taken; /* rung when loops have taken all answers */
};

/* Counts the command's answer as taken in `receipts`. The loop must call command_sign() when it
 * takes the answer. */
void command_sign(struct command *command);

/* Aborts unless `command` has this type. Call it before every cast from a command to the struct
 * that contains the command. */
static inline void command_assert_type(
	const struct command *command, const struct command_type *type)
{
	assert(command->type == type);
}

static inline size_t command_weight(const struct command *command)
{
	return command->weight > 0 ? command->weight : 1;
}

/* Returns whether a queue or batch that holds the weight `held` and is limited to `max` has room
 * for a command of this `weight`. An empty queue or batch has room for any command. */
static inline bool weight_fits(size_t held, size_t weight, size_t max)
{
	return held == 0 || held + weight <= max;
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
	size_t weight; /* the sum of its commands' weights */
	size_t bytes;  /* the sum of its commands' bytes */
};

void command_list_push(struct command_list *list, struct command *command);

/* Moves all commands of `from` to the end of `list`. */
void command_list_append(struct command_list *list, struct command_list *from);

/* Removes and returns the first command, or returns NULL if the list is empty. */
struct command *command_list_pop(struct command_list *list);

/*
 * Sends all commands of `list` back to their loops, with one wake-up per loop (or a few, if there
 * are more than 32 loops). Every command must have an answer. Afterwards the list is empty and the
 * loops own the commands. Thread-safe.
 */
void command_list_deliver(struct command_list *list);

#endif

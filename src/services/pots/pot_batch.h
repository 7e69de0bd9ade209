/*
 * Runs a batch of commands on pots in one transaction: locks every pot that nobody else has locked,
 * runs the commands of each pot in order of arrival, writes the changes and releases the locks. All
 * commands on a pot share one lock. If another owner has locked a pot, the commands on that pot
 * become BUSY.
 */
#ifndef QUIPU_SERVICES_POTS_BATCH_H
#define QUIPU_SERVICES_POTS_BATCH_H

#include "flow/reader.h"
#include "flow/write.h"
#include "protobuf/proto_message.h"
#include "services/pots/pot_rules.h"
#include "services/pots/pots.h"

enum pot_verb {
	POT_CREATE,
	POT_ADD,
	POT_REMOVE,     /* removes coins by kind */
	POT_REMOVE_ANY, /* removes coins at random */
};

/* A change of a pot. The key of its command is pot_name_key() for CREATE, otherwise
 * pot_id_key(). */
struct pot_command {
	struct write write;
	enum pot_verb verb;
	enum proto_encoding encoding; /* the encoding of the answer */
	int32_t pot_id;
	struct asked_coins coins; /* for ADD and REMOVE */
	int64_t count;            /* for REMOVE_ANY */
	struct slice name;        /* for CREATE */
	int32_t max_coins;        /* for CREATE */
};

extern const struct command_type pot_command_type;

/* Creates a command in `arena`, zeroed except for its type. */
struct pot_command *pot_command_new(struct arena *arena);

/* Returns the command that `write` belongs to. Aborts if `write` is not a pot command. */
struct pot_command *pot_command_of(struct write *write);

enum pot_look { LOOK_POT, LOOK_NAME, LOOK_COINS, LOOK_LIST };

/* A lookup of a pot by id or name, of the coins in a pot, or of a page of pots. */
struct pot_lookup {
	struct read read;
	enum pot_look look;
	enum proto_encoding encoding;
	int32_t pot_id;
	struct slice name;
	int32_t page;
	int32_t limit; /* the limit in the request; 0 means POT_PAGE_DEFAULT */
};

extern const struct command_type pot_lookup_type;

/* Creates a zeroed lookup in `arena`, and sets its type. */
struct pot_lookup *pot_lookup_new(struct arena *arena);

/* Returns the lookup that `read` belongs to. Aborts if `read` is not a pot lookup. */
struct pot_lookup *pot_lookup_of(struct read *read);

#define POT_PAGE_DEFAULT 25
#define POT_PAGE_MOST 100

/* Return keys for commands, allocated from `arena`. Keys of ids sort like the ids, after all keys
 * of names. */
struct slice pot_id_key(struct arena *arena, int32_t pot_id);
struct slice pot_name_key(struct arena *arena, struct slice name);

/* Decides the fate of every write of the batch (each a struct pot_command); see flow/committer.h.
 * Blocks. */
enum status pot_batch_decide(
	const struct pots *pots, struct session *session, const struct write_batch *batch);

/* Returns the answer for a command that is given up because its pot (for CREATE, its name) stayed
 * locked through all retries. */
struct answer pot_batch_give_up(struct write *write);

/* Answers every read of the batch (each a struct pot_lookup); see flow/reader.h. Blocks. */
enum status pot_batch_look_up(const struct pot_repository *repository, struct session *session,
	const struct read_batch *batch);

#endif

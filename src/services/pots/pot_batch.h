/*
 * A batch of commands on pots against the repository, in one transaction: takes the locks of all
 * pots that are free, runs the commands of each in the order they came, writes what has changed and
 * releases the locks. Commands for one pot thus share one taking of its lock. A pot whose lock
 * another holds leaves the batch as BUSY.
 */
#ifndef QUIPU_SERVICES_POTS_BATCH_H
#define QUIPU_SERVICES_POTS_BATCH_H

#include "flow/reader.h"
#include "flow/write.h"
#include "http/proto_message.h"
#include "services/pots/pot_rules.h"
#include "services/pots/pots.h"

enum pot_verb {
	POT_CREATE,
	POT_ADD,
	POT_REMOVE,     /* coins by kind */
	POT_REMOVE_ANY, /* coins at random */
};

/* A change. The key of the command is the pot's name or id, see pot_name_key() and pot_id_key(). */
struct pot_command {
	struct write write;
	enum pot_verb verb;
	enum proto_encoding encoding; /* of the answer */
	int32_t pot_id;
	struct asked_coins coins; /* ADD, REMOVE */
	int64_t count;            /* REMOVE_ANY */
	struct slice name;        /* CREATE */
	int32_t max_coins;        /* CREATE */
};

extern const struct command_type pot_command_type;

/* Creates one in `arena`, zeroed except for its type. */
struct pot_command *pot_command_new(struct arena *arena);

/* Aborts if `write` is of another type. */
struct pot_command *pot_command_of(struct write *write);

enum pot_look { LOOK_POT, LOOK_NAME, LOOK_COINS, LOOK_LIST };

/* A look. */
struct pot_lookup {
	struct read read;
	enum pot_look look;
	enum proto_encoding encoding;
	int32_t pot_id;
	struct slice name;
	int32_t page;
	int32_t limit; /* as it was sent: 0 is POT_PAGE_DEFAULT */
};

extern const struct command_type pot_lookup_type;

/* Creates one in `arena`, zeroed except for its type. */
struct pot_lookup *pot_lookup_new(struct arena *arena);

/* Aborts if `read` is of another type. */
struct pot_lookup *pot_lookup_of(struct read *read);

#define POT_PAGE_DEFAULT 25
#define POT_PAGE_MOST 100

/* Keys of commands; those of ids are in the order of the ids. */
struct slice pot_id_key(struct arena *arena, int32_t pot_id);
struct slice pot_name_key(struct arena *arena, struct slice name);

/* Settles every write of the batch (each a struct pot_command); see flow/committer.h. */
enum status pot_batch_decide(
	const struct pots *pots, struct session *session, const struct write_batch *batch);

/* What a command gets that has waited for its pot too often. */
struct answer pot_batch_give_up(struct write *write);

/* Answers every read of the batch (each a struct pot_lookup); see flow/reader.h. */
enum status pot_batch_look_up(const struct pot_repository *repository, struct session *session,
	const struct read_batch *batch);

#endif

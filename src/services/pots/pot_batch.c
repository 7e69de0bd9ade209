/*
 * The content of a pot changes only under the pot's lock: a token with an expiry time, stored in
 * the pot's row. The lock exists for other programs, which may change pots under the same lock.
 * If only Quipu's own processes changed pots, locking the row in the store would suffice.
 *
 * Invariants: every change of a pot's content names the token, so a batch that has lost its lock
 * changes nothing and runs again. Locks are taken in id order, and before new pots are inserted, so
 * processes never deadlock.
 */
#include "services/pots/pot_batch.h"

#include "flow/groups.h"
#include "services/pots/pot_answers.h"

/* ---- command types ----------------------------------------------------------------------- */

const struct command_type pot_command_type = {"pot_command", true};

struct pot_command *pot_command_new(struct arena *arena)
{
	struct pot_command *command = arena_new(arena, struct pot_command);

	command->write.command.type = &pot_command_type;
	return command;
}

struct pot_command *pot_command_of(struct write *write)
{
	command_assert_type(&write->command, &pot_command_type);
	return (struct pot_command *)write;
}

const struct command_type pot_lookup_type = {"pot_lookup", false};

struct pot_lookup *pot_lookup_new(struct arena *arena)
{
	struct pot_lookup *lookup = arena_new(arena, struct pot_lookup);

	lookup->read.command.type = &pot_lookup_type;
	return lookup;
}

struct pot_lookup *pot_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &pot_lookup_type);
	return (struct pot_lookup *)read;
}

/* ---- keys -------------------------------------------------------------------------------- */

/* Returns a key such as "pot 0000000017". The key always has ten digits, so that keys sort like the
 * ids. */
struct slice pot_id_key(struct arena *arena, int32_t pot_id)
{
	static const char first[] = "pot 0000000000";
	char *key = arena_alloc(arena, sizeof(first) - 1);
	char *digit = key + sizeof(first) - 1;

	memcpy(key, first, sizeof(first) - 1);
	for (uint32_t rest = (uint32_t)pot_id; rest > 0; rest /= 10)
		*--digit = (char)('0' + rest % 10);
	return slice_make(key, sizeof(first) - 1);
}

struct slice pot_name_key(struct arena *arena, struct slice name)
{
	struct buffer key = buffer_make(arena, 8 + name.len);

	buffer_text(&key, "name ");
	buffer_add(&key, name);
	return buffer_slice(&key);
}

static struct pot_command *command_at(const struct write_group *group, size_t i)
{
	return pot_command_of(group->writes[i]);
}

/* ---- coins, under locks ------------------------------------------------------------------ */

static struct answer run_command(
	const struct pot_command *command, struct pot_state *pot, struct dice *dice)
{
	struct arena *arena = command->write.command.arena;
	struct coins coins = {0};

	switch (command->verb) {
	case POT_ADD:
		if (pot_add(pot, &command->coins, &coins) != STATUS_OK)
			return pot_answer_full(arena, command->pot_id, pot);
		break;
	case POT_REMOVE:
		coins = pot_remove(pot, &command->coins);
		break;
	case POT_REMOVE_ANY:
		coins = pot_remove_any(pot, command->count, dice);
		break;
	case POT_CREATE:
		/* not reached: create_pots() runs CREATE */
		return answer_failure(arena, STATUS_INTERNAL);
	}
	return pot_answer_coins(arena, command->encoding, &coins);
}

/* Runs the commands of the group one by one and sets `change` to the changes that must be
 * written. */
static void run_group(const struct write_group *group, const struct pot_content *content,
	struct dice *dice, struct pot_change *change)
{
	struct pot_state pot = {.max_coins = content->max_coins, .coins = content->coins};

	for (size_t i = 0; i < group->count; i++)
		write_answer(group->writes[i], run_command(command_at(group, i), &pot, dice));
	change->pot_id = content->pot_id;
	change->coins = pot.coins;
	for (size_t kind = 0; kind < COIN_KINDS; kind++)
		change->is_changed[kind] = pot.coins.of[kind] != content->coins.of[kind];
}

/* Refuses all commands of a group, because their pot does not exist. */
static void refuse_group(const struct write_group *group)
{
	for (size_t i = 0; i < group->count; i++) {
		const struct pot_command *command = command_at(group, i);

		write_answer(group->writes[i],
			pot_answer_no_pot(command->write.command.arena, command->pot_id));
	}
}

/* Locks the pots, runs their commands and writes the changes. Seeds new dice for every batch, so
 * that nobody can predict draws from earlier draws. */
static enum status change_pots(const struct pots *pots, struct session *session,
	struct arena *arena, const struct write_group *groups, size_t count)
{
	struct pot_content *contents = arena_array(arena, struct pot_content, count);
	struct pot_change *changes = arena_array(arena, struct pot_change, count);
	struct pot_lock lock = {.ttl_us = pots->lock_ttl_us};
	size_t changed = 0;
	struct dice dice;
	enum status status;

	uuid_random(lock.token);
	dice_init(&dice);
	for (size_t i = 0; i < count; i++)
		contents[i].pot_id = command_at(&groups[i], 0)->pot_id;
	status = pots->repository->ops->take(pots->repository, session, &lock, contents, count);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++) {
		if (contents[i].busy)
			write_group_busy(&groups[i]);
		else if (contents[i].exists)
			run_group(&groups[i], &contents[i], &dice, &changes[changed++]);
		else
			refuse_group(&groups[i]);
	}
	return changed > 0 ? pots->repository->ops->put(
				     pots->repository, session, &lock, changes, changed)
			   : STATUS_OK;
}

/* ---- new pots ---------------------------------------------------------------------------- */

/* If the name was free, the first command of the group has created the pot. All other commands are
 * refused. */
static void answer_created(const struct write_group *group, const struct pot_row *pot)
{
	for (size_t i = 0; i < group->count; i++) {
		const struct pot_command *command = command_at(group, i);
		struct arena *arena = command->write.command.arena;

		write_answer(group->writes[i],
			i == 0 && pot->exists ? pot_answer_pot(arena, command->encoding, pot)
					      : pot_answer_name_taken(arena, command->name));
	}
}

static enum status create_pots(const struct pots *pots, struct session *session,
	struct arena *arena, const struct write_group *groups, size_t count)
{
	struct pot_row *rows = arena_array(arena, struct pot_row, count);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		rows[i].name = command_at(&groups[i], 0)->name;
		rows[i].max_coins = command_at(&groups[i], 0)->max_coins;
	}
	status = pots->repository->ops->create(pots->repository, session, rows, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		answer_created(&groups[i], &rows[i]);
	return status;
}

/* The groups are sorted by key, and those that create pots come first, because the key of a name
 * sorts before the key of an id. Nevertheless, existing pots are locked before new ones are
 * inserted. */
enum status pot_batch_decide(
	const struct pots *pots, struct session *session, const struct write_batch *batch)
{
	size_t count, names = 0;
	struct write_group *groups = write_groups(batch, &count);
	enum status status = STATUS_OK;

	while (names < count && command_at(&groups[names], 0)->verb == POT_CREATE)
		names++;
	if (names < count)
		status = change_pots(pots, session, batch->arena, groups + names, count - names);
	if (status == STATUS_OK && names > 0)
		status = create_pots(pots, session, batch->arena, groups, names);
	return status;
}

struct answer pot_batch_give_up(struct write *write)
{
	const struct pot_command *command = pot_command_of(write);

	return command->verb == POT_CREATE
		       ? pot_answer_name_locked(write->command.arena, command->name)
		       : pot_answer_locked(write->command.arena, command->pot_id);
}

/* ---- looking up -------------------------------------------------------------------------- */

/* The lookups of a batch that one query can answer. */
struct looking {
	const struct pot_repository *repository;
	struct session *session;
	struct arena *arena;
	struct pot_lookup **lookups;
	size_t count;
};

static enum status look_for_pots(const struct looking *looking)
{
	const struct pot_repository_ops *ops = looking->repository->ops;
	bool by_name = looking->lookups[0]->look == LOOK_NAME;
	struct pot_row *rows = arena_array(looking->arena, struct pot_row, looking->count);
	enum status status;

	for (size_t i = 0; i < looking->count; i++) {
		rows[i].pot_id = looking->lookups[i]->pot_id;
		rows[i].name = looking->lookups[i]->name;
	}
	status = (by_name ? ops->find_names : ops->find)(
		looking->repository, looking->session, looking->arena, rows, looking->count);
	for (size_t i = 0; i < looking->count && status == STATUS_OK; i++) {
		struct pot_lookup *lookup = looking->lookups[i];
		struct arena *arena = lookup->read.command.arena;

		if (rows[i].exists)
			lookup->read.command.answer =
				pot_answer_pot(arena, lookup->encoding, &rows[i]);
		else if (by_name)
			lookup->read.command.answer = pot_answer_no_name(arena, lookup->name);
		else
			lookup->read.command.answer = pot_answer_no_pot(arena, lookup->pot_id);
	}
	return status;
}

static enum status look_for_coins(const struct looking *looking)
{
	struct pot_content *contents =
		arena_array(looking->arena, struct pot_content, looking->count);
	enum status status;

	for (size_t i = 0; i < looking->count; i++)
		contents[i].pot_id = looking->lookups[i]->pot_id;
	status = looking->repository->ops->find_coins(
		looking->repository, looking->session, contents, looking->count);
	for (size_t i = 0; i < looking->count && status == STATUS_OK; i++) {
		struct pot_lookup *lookup = looking->lookups[i];
		struct arena *arena = lookup->read.command.arena;

		lookup->read.command.answer =
			contents[i].exists
				? pot_answer_coins(arena, lookup->encoding, &contents[i].coins)
				: pot_answer_no_pot(arena, lookup->pot_id);
	}
	return status;
}

static enum status look_for_lists(const struct looking *looking)
{
	struct pot_page *pages = arena_array(looking->arena, struct pot_page, looking->count);
	enum status status;
	int64_t total;

	for (size_t i = 0; i < looking->count; i++) {
		const struct pot_lookup *lookup = looking->lookups[i];

		pages[i].limit = lookup->limit > 0 ? lookup->limit : POT_PAGE_DEFAULT;
		pages[i].offset = (int64_t)(lookup->page - 1) * pages[i].limit;
	}
	status = looking->repository->ops->list(looking->repository, looking->session,
		looking->arena, pages, looking->count, &total);
	for (size_t i = 0; i < looking->count && status == STATUS_OK; i++)
		looking->lookups[i]->read.command.answer =
			pot_answer_list(looking->lookups[i], &pages[i], total);
	return status;
}

/* Answers those lookups of the batch that are of the kind `look`. */
static enum status look_for(struct looking *looking, const struct read_batch *batch,
	enum pot_look look, enum status (*answer)(const struct looking *looking))
{
	looking->count = 0;
	for (size_t i = 0; i < batch->count; i++) {
		struct pot_lookup *lookup = pot_lookup_of(batch->reads[i]);

		if (lookup->look == look)
			looking->lookups[looking->count++] = lookup;
	}
	return looking->count > 0 ? answer(looking) : STATUS_OK;
}

enum status pot_batch_look_up(const struct pot_repository *repository, struct session *session,
	const struct read_batch *batch)
{
	struct looking looking = {
		.repository = repository,
		.session = session,
		.arena = batch->arena,
		.lookups = arena_array(batch->arena, struct pot_lookup *, batch->count),
	};
	enum status status = look_for(&looking, batch, LOOK_POT, look_for_pots);

	if (status == STATUS_OK)
		status = look_for(&looking, batch, LOOK_NAME, look_for_pots);
	if (status == STATUS_OK)
		status = look_for(&looking, batch, LOOK_COINS, look_for_coins);
	if (status == STATUS_OK)
		status = look_for(&looking, batch, LOOK_LIST, look_for_lists);
	return status;
}

/* Looks up counts by their ids, with one query for all waiting lookups, or reads a page of all
 * counts. */
#ifndef QUIPU_SERVICES_COUNTS_LOOKUP_H
#define QUIPU_SERVICES_COUNTS_LOOKUP_H

#include "flow/reader.h"
#include "ports/count_repository.h"

/* A lookup of counts. The answer is in the order of `item_ids`, which has no duplicates. */
struct count_lookup {
	struct read read;
	const struct slice *item_ids;
	size_t item_count;
	/* true: the answer is one object, or 404; false: it is a list without the unknown ids */
	bool single;
};

extern const struct command_type count_lookup_type;

/* Creates a zeroed lookup in `arena`, and sets its type. */
struct count_lookup *count_lookup_new(struct arena *arena);

/* Returns the lookup that `read` belongs to. Aborts if `read` is not a count lookup. */
struct count_lookup *count_lookup_of(struct read *read);

/* Sorts rows by id and drops duplicates, in place. Returns how many remain. */
size_t count_rows_unique(struct count_row *rows, size_t count);

/* Returns the row with this id. `rows` must be sorted by id and contain that row. */
const struct count_row *count_rows_find(
	const struct count_row *rows, size_t count, struct slice item_id);

/* Answers every read of the batch (each a struct count_lookup); see flow/reader.h. Blocks. */
enum status count_look_up(const struct count_repository *repository, struct session *session,
	const struct read_batch *batch);

/* Reads one page of the counts whose ids begin with `prefix`, in byte order of their ids. */
struct count_listing {
	struct read read;
	const struct count_repository *repository;
	struct slice path; /* the raw path, for the link to the next page */
	struct slice prefix;
	struct slice after; /* last id of the previous page; empty for the first page */
	size_t limit;
};

/* Creates a listing in `arena`, zeroed except for its type and look_up. */
struct count_listing *count_listing_new(struct arena *arena);

#endif

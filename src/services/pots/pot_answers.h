/*
 * Renders the answers of the pot service: pots and coins as messages of proto/pot.proto and
 * proto/coin.proto, refusals in the form of Twirp. Pure: everything is written into the given
 * arena.
 */
#ifndef QUIPU_SERVICES_POTS_ANSWERS_H
#define QUIPU_SERVICES_POTS_ANSWERS_H

#include "services/pots/pot_batch.h"

struct answer pot_answer_coins(
	struct arena *arena, enum proto_encoding encoding, const struct coins *coins);
struct answer pot_answer_pot(
	struct arena *arena, enum proto_encoding encoding, const struct pot_row *pot);
struct answer pot_answer_list(
	const struct pot_lookup *lookup, const struct pot_page *page, int64_t total);

struct answer pot_answer_no_pot(struct arena *arena, int32_t pot_id);
struct answer pot_answer_no_name(struct arena *arena, struct slice name);
struct answer pot_answer_name_taken(struct arena *arena, struct slice name);
struct answer pot_answer_full(struct arena *arena, int32_t pot_id, const struct pot_state *pot);
struct answer pot_answer_locked(struct arena *arena, int32_t pot_id);
struct answer pot_answer_name_locked(struct arena *arena, struct slice name);

#endif

/*
 * Random grants and revokes of a few entitlements, run in batches, and a model that applies them
 * one by one and knows nothing of batches or stores. It is written from the table of the manual,
 * not from the rules of the program.
 */
#ifndef QUIPU_TESTS_ENTITLEMENT_MODEL_H
#define QUIPU_TESTS_ENTITLEMENT_MODEL_H

#include "base/random.h"
#include "services/entitlements/entitlement_batch.h"

#define MODEL_PAIRS 4
#define MODEL_PURCHASES 7
#define MODEL_REASONS 3
#define MODEL_BATCH_MAX 24

enum model_source { SOURCE_NEW, SOURCE_ACTIVE, SOURCE_ENDED };

struct model_pair {
	struct slice user_id;
	struct slice unit;
	int64_t version; /* 0: never granted */
	int64_t line_count;
	enum model_source purchases[MODEL_PURCHASES];
	enum model_source reasons[MODEL_REASONS];
	enum model_source migrated;
};

struct entitlement_model {
	struct arena *arena;
	struct dice dice;
	struct slice purchases[MODEL_PURCHASES];
	struct slice reasons[MODEL_REASONS];
	struct model_pair pairs[MODEL_PAIRS];
	int64_t event_count;
};

/* Users have names that begin with `prefix`. `arena` outlives the model. */
void entitlement_model_init(
	struct entitlement_model *model, struct arena *arena, const char *prefix, uint64_t seed);

/* Gives the last pair an entitlement that the migration knows no source of. In a transaction. */
void entitlement_model_migrate(struct entitlement_model *model,
	const struct entitlement_repository *repository, struct session *session);

/* Decides a random batch, in a transaction, and compares every answer with the model. */
void entitlement_model_run(struct entitlement_model *model, const struct entitlements *entitlements,
	struct session *session);

/* Compares what is stored, outside a transaction, with the model. */
void entitlement_model_compare(struct entitlement_model *model,
	const struct entitlement_repository *repository, struct session *session);

#endif

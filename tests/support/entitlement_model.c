/*
 * The model of entitlement_model.h: draws random changes, applies them one by one to plain structs,
 * and compares answers, rows, sources and audit lines with what a batch has produced. It shares no
 * code with the service except for the types of the port.
 */
#include "entitlement_model.h"

#include "check.h"

/* ---- the model --------------------------------------------------------------------------- */

struct model_change {
	struct model_pair *pair;
	bool is_grant;
	int purchase; /* −1: none */
	int reason;   /* of the model's; purchases have another */
};

struct model_answer {
	int http_status;
	const char *code;
};

static size_t count_active(const struct model_pair *pair)
{
	size_t count = pair->migrated == SOURCE_ACTIVE;

	for (size_t i = 0; i < MODEL_PURCHASES; i++)
		count += pair->purchases[i] == SOURCE_ACTIVE;
	for (size_t i = 0; i < MODEL_REASONS; i++)
		count += pair->reasons[i] == SOURCE_ACTIVE;
	return count;
}

static bool is_active(const struct model_pair *pair)
{
	return pair->version % 2 == 1;
}

static struct model_answer apply_grant(struct model_change change)
{
	bool is_purchase = change.purchase >= 0;
	enum model_source *source = is_purchase ? &change.pair->purchases[change.purchase]
						: &change.pair->reasons[change.reason];

	if (*source == SOURCE_ACTIVE || (*source == SOURCE_ENDED && is_purchase))
		return (struct model_answer){409, "ENTITLEMENT_STATE_CONFLICT"};
	*source = SOURCE_ACTIVE;
	return (struct model_answer){200, NULL};
}

static void end_all(struct model_pair *pair)
{
	for (size_t i = 0; i < MODEL_PURCHASES; i++) {
		if (pair->purchases[i] == SOURCE_ACTIVE)
			pair->purchases[i] = SOURCE_ENDED;
	}
	for (size_t i = 0; i < MODEL_REASONS; i++) {
		if (pair->reasons[i] == SOURCE_ACTIVE)
			pair->reasons[i] = SOURCE_ENDED;
	}
	if (pair->migrated == SOURCE_ACTIVE)
		pair->migrated = SOURCE_ENDED;
}

static struct model_answer apply_revoke(struct model_change change)
{
	struct model_pair *pair = change.pair;
	enum model_source *source = change.purchase < 0 ? NULL : &pair->purchases[change.purchase];

	if (pair->version == 0)
		return (struct model_answer){404, "ENTITLEMENT_NOT_FOUND"};
	if (!is_active(pair) || (source && *source == SOURCE_ENDED))
		return (struct model_answer){409, "ENTITLEMENT_STATE_CONFLICT"};
	if (source && *source == SOURCE_NEW && pair->migrated != SOURCE_ACTIVE)
		return (struct model_answer){404, "ENTITLEMENT_NOT_FOUND"};
	if (!source)
		end_all(pair);
	else if (*source == SOURCE_NEW)
		pair->migrated = SOURCE_ENDED;
	if (source)
		*source = SOURCE_ENDED;
	return (struct model_answer){200, NULL};
}

/* Applies a change; only a change of the status is a new version, and an event. */
static struct model_answer apply(struct entitlement_model *model, struct model_change change)
{
	struct model_pair *pair = change.pair;
	struct model_answer answer = change.is_grant ? apply_grant(change) : apply_revoke(change);

	if (answer.http_status != 200)
		return answer;
	pair->line_count++;
	if (is_active(pair) != (count_active(pair) > 0)) {
		pair->version++;
		model->event_count++;
	}
	return answer;
}

/* ---- setting up -------------------------------------------------------------------------- */

static struct slice name_of(struct arena *arena, const char *prefix, const char *word, size_t i)
{
	struct buffer name = buffer_make(arena, 32);

	buffer_format(&name, "%s%s%zu", prefix, word, i);
	return buffer_slice(&name);
}

void entitlement_model_init(
	struct entitlement_model *model, struct arena *arena, const char *prefix, uint64_t seed)
{
	*model = (struct entitlement_model){.arena = arena, .dice.state = seed};
	for (size_t i = 0; i < MODEL_PURCHASES; i++)
		model->purchases[i] = name_of(arena, "", "p", i);
	for (size_t i = 0; i < MODEL_REASONS; i++) /* as texts, reasons and purchases are alike */
		model->reasons[i] = name_of(arena, "", "p", i);
	for (size_t i = 0; i < MODEL_PAIRS; i++) {
		model->pairs[i].user_id = name_of(arena, prefix, "user", i / 2);
		model->pairs[i].unit = name_of(arena, "", "unit", i % 2);
	}
}

void entitlement_model_migrate(struct entitlement_model *model,
	const struct entitlement_repository *repository, struct session *session)
{
	struct model_pair *pair = &model->pairs[MODEL_PAIRS - 1];
	struct entitlement_row row = {.user_id = pair->user_id,
		.unit = pair->unit,
		.is_active = true,
		.version = 1,
		.updated_us = 1};
	struct entitlement_source source = {.user_id = pair->user_id,
		.unit = pair->unit,
		.kind = slice_of(ENTITLEMENT_MIGRATED),
		.id = slice_of(ENTITLEMENT_MIGRATED),
		.is_active = true,
		.reason = slice_of(ENTITLEMENT_MIGRATED),
		.granted_us = 1};
	struct entitlement_changes changes = {
		.rows = &row, .row_count = 1, .sources = &source, .source_count = 1};

	assert_int_equal(repository->ops->put(repository, session, &changes), STATUS_OK);
	pair->version = 1;
	pair->migrated = SOURCE_ACTIVE;
}

/* ---- running ----------------------------------------------------------------------------- */

static struct model_change choose(struct entitlement_model *model)
{
	uint64_t kind = dice_below(&model->dice, 8);

	return (struct model_change){
		.pair = &model->pairs[dice_below(&model->dice, MODEL_PAIRS)],
		.is_grant = dice_below(&model->dice, 2) == 0,
		.purchase = kind == 0 ? -1 : (int)dice_below(&model->dice, MODEL_PURCHASES),
		.reason = (int)dice_below(&model->dice, MODEL_REASONS),
	};
}

static void make_command(const struct entitlement_model *model, struct arena *arena,
	struct model_change change, struct entitlement_command *command)
{
	*command = (struct entitlement_command){
		.write.command.type = &entitlement_command_type,
		.write.command.arena = arena,
		.write.command.key =
			entitlement_lane_key(arena, change.pair->user_id, change.pair->unit),
		.is_grant = change.is_grant,
		.user_id = change.pair->user_id,
		.unit = change.pair->unit,
		.reason = model->reasons[change.reason],
	};
	if (change.purchase >= 0)
		command->purchase_id = model->purchases[change.purchase];
}

static void compare_answer(
	const struct answer *answer, struct model_answer expected, const struct model_pair *pair)
{
	char state[64];

	assert_int_equal(answer->http_status, expected.http_status);
	if (expected.code)
		assert_contains(answer->body, expected.code);
	if (expected.http_status == 404)
		return;
	snprintf(state, sizeof(state), "\"status\":\"%s\",\"version\":%lld,",
		is_active(pair) ? "ACTIVE" : "REVOKED", (long long)pair->version);
	assert_contains(answer->body, state);
}

void entitlement_model_run(struct entitlement_model *model, const struct entitlements *entitlements,
	struct session *session)
{
	struct arena arena;
	struct model_change changes[MODEL_BATCH_MAX];
	struct entitlement_command commands[MODEL_BATCH_MAX];
	struct write *writes[MODEL_BATCH_MAX];
	struct write_batch batch = {.writes = writes, .arena = &arena};

	arena_init(&arena, 16384);
	batch.count = 1 + dice_below(&model->dice, MODEL_BATCH_MAX);
	for (size_t i = 0; i < batch.count; i++) {
		changes[i] = choose(model);
		make_command(model, &arena, changes[i], &commands[i]);
		commands[i].write.position = i;
		writes[i] = &commands[i].write;
	}
	assert_int_equal(entitlement_batch_decide(entitlements, session, &batch), STATUS_OK);
	for (size_t i = 0; i < batch.count; i++)
		compare_answer(&commands[i].write.command.answer, apply(model, changes[i]),
			changes[i].pair);
	arena_release(&arena);
}

/* ---- comparing --------------------------------------------------------------------------- */

static enum model_source state_of(
	const struct entitlement_look *look, const char *kind, struct slice id)
{
	for (size_t i = 0; i < look->source_count; i++) {
		const struct entitlement_source *source = &look->sources[i];

		if (!slice_is(source->kind, kind) || !slice_equal(source->id, id))
			continue;
		assert_int_equal(source->is_active, source->revoked_us == 0);
		return source->is_active ? SOURCE_ACTIVE : SOURCE_ENDED;
	}
	return SOURCE_NEW;
}

static void compare_pair(const struct entitlement_model *model, const struct model_pair *pair,
	const struct entitlement_look *look)
{
	assert_int_equal(look->row.exists, pair->version > 0);
	if (!look->row.exists)
		return;
	assert_true(look->row.version == pair->version);
	assert_int_equal(look->row.is_active, is_active(pair));
	for (size_t i = 0; i < MODEL_PURCHASES; i++)
		assert_int_equal(state_of(look, ENTITLEMENT_PURCHASE, model->purchases[i]),
			pair->purchases[i]);
	for (size_t i = 0; i < MODEL_REASONS; i++)
		assert_int_equal(
			state_of(look, ENTITLEMENT_REASON, model->reasons[i]), pair->reasons[i]);
	assert_int_equal(state_of(look, ENTITLEMENT_MIGRATED, slice_of(ENTITLEMENT_MIGRATED)),
		pair->migrated);
}

void entitlement_model_compare(struct entitlement_model *model,
	const struct entitlement_repository *repository, struct session *session)
{
	struct entitlement_look looks[MODEL_PAIRS] = {0};

	for (size_t i = 0; i < MODEL_PAIRS; i++) {
		looks[i].row.user_id = model->pairs[i].user_id;
		looks[i].row.unit = model->pairs[i].unit;
	}
	assert_int_equal(
		repository->ops->look(repository, session, model->arena, looks, MODEL_PAIRS, 1000),
		STATUS_OK);
	for (size_t i = 0; i < MODEL_PAIRS; i++)
		compare_pair(model, &model->pairs[i], &looks[i]);
}

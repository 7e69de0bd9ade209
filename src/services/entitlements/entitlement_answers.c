/*
 * Renders the answers about entitlements. Members are in the order of the specification's examples.
 * The answer to a state conflict includes the current entitlement, so that the caller need not look
 * it up.
 */
#include "services/entitlements/entitlement_answers.h"

/* Writes the members of an entitlement except user_id. */
static void write_rest(struct buffer *body, const struct entitlement_row *row)
{
	buffer_member(body, "stock_keeping_unit", row->unit);
	buffer_member(body, "status", slice_of(row->is_active ? "ACTIVE" : "REVOKED"));
	buffer_member_int(body, "version", row->version);
	buffer_member_time(body, "updated_at", row->updated_us);
}

/* Writes an entitlement without the closing brace. */
static void write_entitlement(struct buffer *body, const struct entitlement_row *row)
{
	buffer_char(body, '{');
	buffer_member(body, "user_id", row->user_id);
	write_rest(body, row);
}

struct answer entitlement_answer(struct arena *arena, const struct entitlement_row *row)
{
	struct buffer body = buffer_make(arena, row->user_id.len + row->unit.len + 128);

	write_entitlement(&body, row);
	buffer_char(&body, '}');
	return answer_json(200, buffer_slice(&body));
}

/* ---- refusals ---------------------------------------------------------------------------- */

/* Returns the sentence that explains a state conflict. A grant conflicts with the source that it
 * names. A revoke conflicts with the entitlement if the entitlement is REVOKED; otherwise the
 * revoke conflicts with the source that it names. */
static const char *conflict_detail(
	const struct entitlement_refusal *refusal, const struct entitlement_row *row)
{
	if (!refusal->is_grant && !row->is_active)
		return "the entitlement is REVOKED already; nothing was changed";
	if (!refusal->is_grant)
		return "this purchase was revoked already, and the entitlement is ACTIVE because "
		       "of another source; nothing was changed";
	if (!refusal->source->is_active)
		return "this purchase was revoked and cannot grant the entitlement again; nothing "
		       "was changed";
	if (slice_is(refusal->source->kind, ENTITLEMENT_PURCHASE))
		return "the entitlement is ACTIVE already because of this purchase; nothing was "
		       "changed";
	return "the entitlement is ACTIVE already for this reason; nothing was changed";
}

static struct answer answer_conflict(struct arena *arena, const struct entitlement_refusal *refusal)
{
	const struct entitlement_row *row = refusal->row;
	struct buffer members = buffer_make(arena, row->user_id.len + row->unit.len + 160);

	buffer_text(&members, ",\"entitlement\":");
	write_entitlement(&members, row);
	buffer_char(&members, '}');
	return answer_problem_with(arena, STATUS_ENTITLEMENT_STATE_CONFLICT, buffer_slice(&members),
		conflict_detail(refusal, row));
}

static struct answer answer_missing(struct arena *arena, const struct entitlement_refusal *refusal)
{
	const struct entitlement_row *row = refusal->row;

	if (row->version == 0)
		return answer_problem(arena, STATUS_ENTITLEMENT_NOT_FOUND,
			"the user \"%.*s\" was never granted \"%.*s\"; nothing was changed",
			(int)row->user_id.len, row->user_id.data, (int)row->unit.len,
			row->unit.data);
	return answer_problem(arena, STATUS_ENTITLEMENT_NOT_FOUND,
		"the user \"%.*s\" has \"%.*s\", but not from the purchase \"%.*s\"; nothing was "
		"changed",
		(int)row->user_id.len, row->user_id.data, (int)row->unit.len, row->unit.data,
		(int)refusal->source->id.len, refusal->source->id.data);
}

struct answer entitlement_answer_refused(
	struct arena *arena, const struct entitlement_refusal *refusal)
{
	if (refusal->status == STATUS_ENTITLEMENT_STATE_CONFLICT)
		return answer_conflict(arena, refusal);
	if (refusal->status == STATUS_ENTITLEMENT_NOT_FOUND)
		return answer_missing(arena, refusal);
	return answer_problem(arena, refusal->status,
		"the entitlement has %zu sources, active and ended, and cannot have more; nothing "
		"was changed",
		refusal->row->source_count);
}

/* ---- lookups ----------------------------------------------------------------------------- */

static void write_source(struct buffer *body, const struct entitlement_source *source)
{
	buffer_char(body, '{');
	buffer_member(body, "kind", source->kind);
	buffer_member(body, "source_id", source->id);
	buffer_member(body, "reason", source->reason);
	buffer_member(body, "status", slice_of(source->is_active ? "ACTIVE" : "REVOKED"));
	buffer_member_time(body, "granted_at", source->granted_us);
	if (source->is_active)
		buffer_text(body, ",\"revoked_at\":null");
	else
		buffer_member_time(body, "revoked_at", source->revoked_us);
	buffer_char(body, '}');
}

struct answer entitlement_answer_look(struct arena *arena, const struct entitlement_look *look)
{
	struct buffer body;

	if (!look->row.exists)
		return answer_problem(arena, STATUS_ENTITLEMENT_NOT_FOUND,
			"the user \"%.*s\" was never granted \"%.*s\"", (int)look->row.user_id.len,
			look->row.user_id.data, (int)look->row.unit.len, look->row.unit.data);
	body = buffer_make(arena, 192 * look->source_count + 512);
	write_entitlement(&body, &look->row);
	buffer_text(&body, ",\"sources\":[");
	for (size_t i = 0; i < look->source_count; i++) {
		if (i > 0)
			buffer_char(&body, ',');
		write_source(&body, &look->sources[i]);
	}
	buffer_text(&body, "]}");
	return answer_json(200, buffer_slice(&body));
}

struct answer entitlement_answer_list(
	struct arena *arena, struct slice user_id, const struct entitlement_row *rows, size_t count)
{
	struct buffer body = buffer_make(arena, 128 * count + 256);

	buffer_char(&body, '{');
	buffer_member(&body, "user_id", user_id);
	buffer_text(&body, ",\"entitlements\":[");
	for (size_t i = 0; i < count; i++) {
		buffer_text(&body, i == 0 ? "{" : ",{");
		write_rest(&body, &rows[i]);
		buffer_char(&body, '}');
	}
	buffer_text(&body, "]}");
	return answer_json(200, buffer_slice(&body));
}

/* Writes a member of an audit line: the text, or null if the text is empty. */
static void write_optional(struct buffer *body, const char *name, struct slice text)
{
	if (text.len > 0)
		buffer_member(body, name, text);
	else
		buffer_format(body, ",\"%s\":null", name);
}

static void write_line(struct buffer *body, const struct entitlement_audit *line)
{
	buffer_char(body, '{');
	buffer_member(body, "stock_keeping_unit", line->unit);
	buffer_member(body, "action", slice_of(line->is_active ? "GRANTED" : "REVOKED"));
	buffer_member_int(body, "version", line->version);
	buffer_member(body, "reason", line->reason);
	write_optional(body, "purchase_id", line->purchase_id);
	write_optional(body, "event_id", line->event_id);
	buffer_member_time(body, "occurred_at", line->at_us);
	buffer_char(body, '}');
}

struct answer entitlement_answer_audit(struct arena *arena, struct slice user_id,
	const struct entitlement_audit *lines, size_t count)
{
	struct buffer body = buffer_make(arena, 256 * count + 256);

	buffer_char(&body, '{');
	buffer_member(&body, "user_id", user_id);
	buffer_text(&body, ",\"audit\":[");
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			buffer_char(&body, ',');
		write_line(&body, &lines[i]);
	}
	buffer_text(&body, "]}");
	return answer_json(200, buffer_slice(&body));
}

/*
 * The places where SQLite keeps data about a person, service by service. Published events of
 * dialogs and the answers stored under Idempotency-Keys are not erased, because they are soon
 * deleted without an eraser: the events after a day, the answers after --idempotency-ttl.
 */
#include "adapters/store/sqlite/sqlite_eraser.h"

/* clang-format off */
#define SOME(table, where) "rowid IN (SELECT rowid FROM " table " WHERE " where " LIMIT ?2) "

/* True for events of an outbox that may still be published. */
#define UNSENT "status IN ('PENDING', 'IN_FLIGHT', 'FAILED')"

/* ---- dialogs ----------------------------------------------------------------------------- */

#define SENT_SQL                                                                           \
	"FROM conversations c "                                                            \
	"CROSS JOIN messages m INDEXED BY messages_dialog "                                \
	"  ON m.receiver_id = c.other_id AND m.sender_id = c.user_id "                     \
	"WHERE c.user_id = ?1 "

/* Selects conversations in a fixed order, so that all statements of one call of erase() select the
 * same conversations. */
#define SOME_CONVERSATIONS                                                                 \
	"(SELECT other_id FROM conversations WHERE user_id = ?1 ORDER BY other_id LIMIT ?2)"

#define NEWEST_SQL                                                                         \
	"(SELECT max(id) FROM messages INDEXED BY messages_dialog "                        \
	" WHERE receiver_id = g.other_id AND sender_id = ?3)"

#define IS_FROM UNSENT " AND instr(CAST(payload AS TEXT), ?1) > 0"

/* Conversations are erased after messages, because SENT_SQL uses the conversations to find the
 * messages that the person sent. */
const struct sqlite_eraser sqlite_dialogs_eraser = {
	.base = {
		.ops = &sqlite_eraser_ops,
		.service = "dialogs",
		.places = {"messages received", "messages sent", "conversations", "events to the person",
			"events about the person"},
		.place_count = 5,
	},
	.places = {
		{{"SELECT count(*) FROM messages WHERE receiver_id = ?1", "u"},
		 {{"DELETE FROM messages WHERE " SOME("messages", "receiver_id = ?1"), "ul"}}},
		{{"SELECT count(*) " SENT_SQL "AND c.other_id <> ?1", "u"},
		 {{"UPDATE messages SET sender_id = ?3, text = '' "
		   "WHERE rowid IN (SELECT m.rowid " SENT_SQL "LIMIT ?2)", "ulp"}}},
		{{"SELECT count(*) FROM conversations WHERE user_id = ?1", "u"},
		 {{"INSERT INTO conversations (user_id, other_id, last_span) "
		   "SELECT g.other_id, ?3, substr(" NEWEST_SQL ", 1, 7) "
		   "FROM " SOME_CONVERSATIONS " g "
		   "WHERE " NEWEST_SQL " IS NOT NULL "
		   "ON CONFLICT (user_id, other_id) DO UPDATE "
		   "SET last_span = max(last_span, excluded.last_span)", "ulp"},
		  {"DELETE FROM conversations "
		   "WHERE other_id = ?1 AND user_id <> ?1 AND user_id IN " SOME_CONVERSATIONS, "ul"},
		  {"DELETE FROM conversations "
		   "WHERE user_id = ?1 AND other_id IN " SOME_CONVERSATIONS, "ul"}}},
		{{"SELECT count(*) FROM dialog_outbox_events WHERE " UNSENT " AND aggregate_key = ?1",
		  "u"},
		 {{"DELETE FROM dialog_outbox_events "
		   "WHERE " SOME("dialog_outbox_events", UNSENT " AND aggregate_key = ?1"), "ul"}}},
		{{"SELECT count(*) FROM dialog_outbox_events WHERE " IS_FROM, "s"},
		 {{"UPDATE dialog_outbox_events "
		   "SET payload = CAST(replace(CAST(payload AS TEXT), ?1, ?3) AS BLOB) "
		   "WHERE " SOME("dialog_outbox_events", IS_FROM), "sln"}}},
	},
};

/* ---- counters ---------------------------------------------------------------------------- */

/* The eraser does not delete the row of a counted message but marks it as read; the janitor deletes
 * the row after 30 days. If the message's event is delivered again before that, the row prevents
 * the message from being counted again. */
const struct sqlite_eraser sqlite_counters_eraser = {
	.base = {
		.ops = &sqlite_eraser_ops,
		.service = "counters",
		.places = {"unread messages", "counters"},
		.place_count = 2,
	},
	.places = {
		{{"SELECT count(*) FROM counter_messages WHERE user_id = ?1 AND state = 'unread'", "u"},
		 {{"UPDATE counter_messages SET state = 'read', event_at = ?3 "
		   "WHERE user_id = ?1 AND message_id IN ("
		   "  SELECT message_id FROM counter_messages "
		   "  WHERE user_id = ?1 AND state = 'unread' LIMIT ?2)", "ult"}}},
		{{"SELECT count(*) FROM counters WHERE user_id = ?1", "u"},
		 {{"DELETE FROM counters WHERE user_id = ?1", "u"}}},
	},
};

/* ---- entitlements ------------------------------------------------------------------------ */

/* True for events about the person; ?2 is the field user_id of the payload. The key alone does not
 * tell: the keys of the events of a user "a:b" begin like those of a user "a". */
#define IS_ABOUT                                                                           \
	"substr(aggregate_key, 1, length(?1) + 1) = ?1 || ':' AND instr(payload, ?2) > 0 "

/* The audit may no longer have the lines of events that were not published in time, so these events
 * are also found by what they say. */
#define EVENTS_SQL                                                                         \
	"SELECT rowid FROM outbox_events WHERE event_id IN ("                              \
	"  SELECT event_id FROM entitlement_audit WHERE user_id = ?1) "                    \
	"UNION SELECT rowid FROM outbox_events "                                           \
	"  WHERE status IN ('PENDING', 'IN_FLIGHT') AND " IS_ABOUT                         \
	"UNION SELECT rowid FROM outbox_events WHERE status = 'FAILED' AND " IS_ABOUT      \
	"UNION SELECT rowid FROM outbox_events WHERE status = 'DISCARDED' AND " IS_ABOUT

/* Events are erased first, because EVENTS_SQL finds most of them through the audit lines. Published
 * events are erased, too. */
const struct sqlite_eraser sqlite_entitlements_eraser = {
	.base = {
		.ops = &sqlite_eraser_ops,
		.service = "entitlements",
		.places = {"events", "sources", "audit lines", "entitlements"},
		.place_count = 4,
	},
	.places = {
		{{"SELECT count(*) FROM (" EVENTS_SQL ")", "uf"},
		 {{"DELETE FROM outbox_events WHERE rowid IN (" EVENTS_SQL "LIMIT ?3)", "ufl"}}},
		{{"SELECT count(*) FROM entitlement_sources WHERE user_id = ?1", "u"},
		 {{"DELETE FROM entitlement_sources "
		   "WHERE user_id = ?1 AND (stock_keeping_unit, kind, source_id) IN ("
		   "  SELECT stock_keeping_unit, kind, source_id FROM entitlement_sources "
		   "  WHERE user_id = ?1 LIMIT ?2)", "ul"}}},
		{{"SELECT count(*) FROM entitlement_audit WHERE user_id = ?1", "u"},
		 {{"DELETE FROM entitlement_audit "
		   "WHERE user_id = ?1 AND (stock_keeping_unit, version, step) IN ("
		   "  SELECT stock_keeping_unit, version, step FROM entitlement_audit "
		   "  WHERE user_id = ?1 LIMIT ?2)", "ul"}}},
		{{"SELECT count(*) FROM entitlements WHERE user_id = ?1", "u"},
		 {{"DELETE FROM entitlements "
		   "WHERE user_id = ?1 AND stock_keeping_unit IN ("
		   "  SELECT stock_keeping_unit FROM entitlements WHERE user_id = ?1 LIMIT ?2)", "ul"}}},
	},
};

/* ---- notifications ----------------------------------------------------------------------- */

const struct sqlite_eraser sqlite_notifications_eraser = {
	.base = {
		.ops = &sqlite_eraser_ops,
		.service = "notifications",
		.places = {"notifications", "dead letters"},
		.place_count = 2,
	},
	.places = {
		{{"SELECT count(*) FROM notifications WHERE user_id = ?1", "u"},
		 {{"DELETE FROM notifications WHERE " SOME("notifications", "user_id = ?1"), "ul"}}},
		{{"SELECT count(*) FROM notification_dlq WHERE instr(payload, ?1) > 0", "f"},
		 {{"DELETE FROM notification_dlq "
		   "WHERE " SOME("notification_dlq", "instr(payload, ?1) > 0"), "fl"}}},
	},
};

/* ---- the gateway ------------------------------------------------------------------------- */

/* SOME_QUEUED and SOME_OUTBOUND are sorted, so that both statements of one call of erase() select
 * the same rows. */
#define SOME_QUEUED                                                                        \
	"id IN (SELECT id FROM queued_messages WHERE user_id = ?1 ORDER BY id LIMIT ?2)"
#define SOME_OUTBOUND                                                                      \
	"rowid IN (SELECT rowid FROM outbound_messages "                                   \
	"  WHERE aggregate_key = ?1 ORDER BY rowid LIMIT ?2)"

/* The id of an erased message is kept in sent_messages. If the message's event is delivered again,
 * the id prevents the message from being sent. */
const struct sqlite_eraser sqlite_limits_eraser = {
	.base = {
		.ops = &sqlite_eraser_ops,
		.service = "gateway",
		.places = {"queued messages", "messages", "dead letters", "limits"},
		.place_count = 4,
	},
	.places = {
		{{"SELECT count(*) FROM queued_messages WHERE user_id = ?1", "u"},
		 {{"INSERT INTO sent_messages (message_id, sent_at) "
		   "SELECT id, ?3 FROM queued_messages WHERE " SOME_QUEUED " "
		   "ON CONFLICT (message_id) DO NOTHING", "ult"},
		  {"DELETE FROM queued_messages WHERE " SOME_QUEUED, "ul"}}},
		{{"SELECT count(*) FROM outbound_messages WHERE aggregate_key = ?1", "u"},
		 {{"INSERT INTO sent_messages (message_id, sent_at) "
		   "SELECT message_id, ?3 FROM outbound_messages WHERE " SOME_OUTBOUND " "
		   "ON CONFLICT (message_id) DO NOTHING", "ult"},
		  {"DELETE FROM outbound_messages WHERE " SOME_OUTBOUND, "ul"}}},
		{{"SELECT count(*) FROM outbound_dlq WHERE aggregate_key = ?1", "u"},
		 {{"DELETE FROM outbound_dlq WHERE " SOME("outbound_dlq", "aggregate_key = ?1"), "ul"}}},
		{{"SELECT count(*) FROM rate_limit_store WHERE user_id = ?1", "u"},
		 {{"DELETE FROM rate_limit_store WHERE user_id = ?1", "u"}}},
	},
};
/* clang-format on */

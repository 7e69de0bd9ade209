/*
 * The places where PostgreSQL keeps data about a person, service by service. Published events of
 * dialogs, and answers stored under Idempotency-Keys, are not listed here, because the janitor
 * deletes them anyway: the events after a day, the answers after --idempotency-ttl.
 */
#include "adapters/store/postgres/postgres_eraser.h"

/* clang-format off */
#define SOME(table, where)                                                                 \
	"ctid = ANY (ARRAY(SELECT ctid FROM " table " WHERE " where " LIMIT $2::int8)) "

/* Selects events of an outbox that have not been published yet; $2 limits their number. */
#define SOME_UNSENT(table, where)                                                          \
	"ctid = ANY (ARRAY("                                                               \
	"  SELECT ctid FROM " table " WHERE stage = 'OPEN' AND " where                     \
	"  UNION ALL SELECT ctid FROM " table " WHERE stage = 'FAILED' AND " where         \
	"  LIMIT $2::int8)) "

#define COUNT_UNSENT(table, where)                                                         \
	"SELECT (SELECT count(*) FROM " table " WHERE stage = 'OPEN' AND " where ")"       \
	"  + (SELECT count(*) FROM " table " WHERE stage = 'FAILED' AND " where ")"

/* ---- dialogs ----------------------------------------------------------------------------- */

#define SENT_SQL                                                                           \
	"FROM conversations c "                                                            \
	"JOIN messages m ON m.receiver_id = c.other_id AND m.sender_id = c.user_id "       \
	"WHERE c.user_id = $1::text "

/* Selects conversations in a fixed order, so that all statements of one call of erase() select the
 * same conversations. */
#define SOME_CONVERSATIONS                                                                 \
	"(SELECT other_id FROM conversations WHERE user_id = $1::text "                    \
	" ORDER BY other_id LIMIT $2::int8)"

#define IS_FROM "position($1::text IN convert_from(payload, 'UTF8')) > 0"

/* Conversations are erased after messages, because the statements that erase the messages sent by
 * the person find these messages through the conversations. */
const struct pg_eraser postgres_dialogs_eraser = {
	.base = {
		.ops = &pg_eraser_ops,
		.service = "dialogs",
		.places = {"messages received", "messages sent", "conversations", "events to the person",
			"events about the person"},
		.place_count = 5,
	},
	.places = {
		{{{"quipu_erase_received_count",
			"SELECT count(*) FROM messages WHERE receiver_id = $1::text"}, "u"},
		 {{{"quipu_erase_received",
			"DELETE FROM messages WHERE " SOME("messages", "receiver_id = $1::text")
			"RETURNING 1"}, "ul"}}},
		{{{"quipu_erase_sent_count",
			"SELECT count(*) " SENT_SQL "AND c.other_id <> $1::text"}, "u"},
		 {{{"quipu_erase_sent",
			"UPDATE messages SET sender_id = $3::text, text = '' "
			"WHERE ctid = ANY (ARRAY(SELECT m.ctid " SENT_SQL "LIMIT $2::int8)) "
			"RETURNING 1"}, "ulp"}}},
		{{{"quipu_erase_conversations_count",
			"SELECT count(*) FROM conversations WHERE user_id = $1::text"}, "u"},
		 {{{"quipu_erase_conversations_rename",
			"INSERT INTO conversations AS c (user_id, other_id, last_span) "
			"SELECT g.other_id, $3::text, left(l.id, 7) "
			"FROM " SOME_CONVERSATIONS " g "
			"CROSS JOIN LATERAL ("
			"  SELECT id FROM messages "
			"  WHERE receiver_id = g.other_id AND sender_id = $3::text "
			"  ORDER BY id DESC LIMIT 1) AS l "
			"ON CONFLICT (user_id, other_id) DO UPDATE "
			"SET last_span = greatest(c.last_span, EXCLUDED.last_span)"}, "ulp"},
		  {{"quipu_erase_conversations_of_others",
			"DELETE FROM conversations c USING " SOME_CONVERSATIONS " g "
			"WHERE c.user_id = g.other_id AND c.other_id = $1::text "
			"  AND c.user_id <> $1::text"}, "ul"},
		  {{"quipu_erase_conversations",
			"DELETE FROM conversations c USING " SOME_CONVERSATIONS " g "
			"WHERE c.user_id = $1::text AND c.other_id = g.other_id "
			"RETURNING 1"}, "ul"}}},
		{{{"quipu_erase_dialog_events_count",
			COUNT_UNSENT("dialog_outbox_events", "aggregate_key = $1::text")}, "u"},
		 {{{"quipu_erase_dialog_events",
			"DELETE FROM dialog_outbox_events "
			"WHERE " SOME_UNSENT("dialog_outbox_events", "aggregate_key = $1::text")
			"RETURNING 1"}, "ul"}}},
		{{{"quipu_erase_dialog_senders_count",
			COUNT_UNSENT("dialog_outbox_events", IS_FROM)}, "s"},
		 {{{"quipu_erase_dialog_senders",
			"UPDATE dialog_outbox_events "
			"SET payload = convert_to(replace(convert_from(payload, 'UTF8'), $1::text, "
			"  $3::text), 'UTF8') "
			"WHERE " SOME_UNSENT("dialog_outbox_events", IS_FROM)
			"RETURNING 1"}, "sln"}}},
	},
};

/* ---- counters ---------------------------------------------------------------------------- */

/* The eraser marks unread messages as read and keeps their rows, because a message's event may be
 * delivered again. Without its row, the message would then be counted again. The rows are deleted
 * 30 days later. */
const struct pg_eraser postgres_counters_eraser = {
	.base = {
		.ops = &pg_eraser_ops,
		.service = "counters",
		.places = {"unread messages", "counters"},
		.place_count = 2,
	},
	.places = {
		{{{"quipu_erase_unread_count",
			"SELECT count(*) FROM counter_messages "
			"WHERE user_id = $1::text AND state = 'unread'"}, "u"},
		 {{{"quipu_erase_unread",
			"UPDATE counter_messages SET state = 'read', event_at = quipu_now() "
			"WHERE " SOME("counter_messages", "user_id = $1::text AND state = 'unread'")
			"RETURNING 1"}, "ul"}}},
		{{{"quipu_erase_counters_count",
			"SELECT count(*) FROM counters WHERE user_id = $1::text"}, "u"},
		 {{{"quipu_erase_counters",
			"DELETE FROM counters WHERE " SOME("counters", "user_id = $1::text")
			"RETURNING 1"}, "ul"}}},
	},
};

/* ---- entitlements ------------------------------------------------------------------------ */

/* The audit may no longer have the lines of events that were not published in time, so these events
 * are also found by what they say. */
#define EVENTS_SQL                                                                         \
	"SELECT o.event_id FROM entitlement_audit a "                                      \
	"JOIN outbox_events o ON o.event_id = a.event_id "                                 \
	"WHERE a.user_id = $1::text " PG_UNPUBLISHED_EVENTS

/* Events are erased before audit lines, because the statement that erases events finds most of them
 * through the audit lines. That statement also erases events that have been published. */
const struct pg_eraser postgres_entitlements_eraser = {
	.base = {
		.ops = &pg_eraser_ops,
		.service = "entitlements",
		.places = {"events", "sources", "audit lines", "entitlements"},
		.place_count = 4,
	},
	.places = {
		{{{"quipu_erase_entitlement_events_count",
			"SELECT count(*) FROM (" EVENTS_SQL ") AS e"}, "uf"},
		 {{{"quipu_erase_entitlement_events",
			"DELETE FROM outbox_events "
			"WHERE event_id = ANY (ARRAY(" EVENTS_SQL "LIMIT $3::int8)) "
			"RETURNING 1"}, "ufl"}}},
		{{{"quipu_erase_sources_count",
			"SELECT count(*) FROM entitlement_sources WHERE user_id = $1::text"}, "u"},
		 {{{"quipu_erase_sources",
			"DELETE FROM entitlement_sources "
			"WHERE " SOME("entitlement_sources", "user_id = $1::text")
			"RETURNING 1"}, "ul"}}},
		{{{"quipu_erase_audit_count",
			"SELECT count(*) FROM entitlement_audit WHERE user_id = $1::text"}, "u"},
		 {{{"quipu_erase_audit",
			"DELETE FROM entitlement_audit "
			"WHERE user_id = $1::text AND (stock_keeping_unit, version, step) IN ("
			"  SELECT stock_keeping_unit, version, step FROM entitlement_audit "
			"  WHERE user_id = $1::text LIMIT $2::int8) "
			"RETURNING 1"}, "ul"}}},
		{{{"quipu_erase_entitlements_count",
			"SELECT count(*) FROM entitlements WHERE user_id = $1::text"}, "u"},
		 {{{"quipu_erase_entitlements",
			"DELETE FROM entitlements WHERE " SOME("entitlements", "user_id = $1::text")
			"RETURNING 1"}, "ul"}}},
	},
};

/* ---- notifications ----------------------------------------------------------------------- */

const struct pg_eraser postgres_notifications_eraser = {
	.base = {
		.ops = &pg_eraser_ops,
		.service = "notifications",
		.places = {"notifications", "dead letters"},
		.place_count = 2,
	},
	.places = {
		{{{"quipu_erase_notifications_count",
			"SELECT count(*) FROM notifications WHERE user_id = $1::text"}, "u"},
		 {{{"quipu_erase_notifications",
			"DELETE FROM notifications "
			"WHERE " SOME("notifications", "user_id = $1::text")
			"RETURNING 1"}, "ul"}}},
		{{{"quipu_erase_letters_count",
			"SELECT count(*) FROM notification_dlq "
			"WHERE position($1::bytea IN payload) > 0"}, "f"},
		 {{{"quipu_erase_letters",
			"DELETE FROM notification_dlq "
			"WHERE " SOME("notification_dlq", "position($1::bytea IN payload) > 0")
			"RETURNING 1"}, "fl"}}},
	},
};

/* ---- the gateway ------------------------------------------------------------------------- */

/* The id of an erased message stays in sent_messages, because the message's event may be delivered
 * again. Without the id, Quipu would then send the message. */
const struct pg_eraser postgres_limits_eraser = {
	.base = {
		.ops = &pg_eraser_ops,
		.service = "gateway",
		.places = {"queued messages", "messages", "dead letters", "limits"},
		.place_count = 4,
	},
	.places = {
		{{{"quipu_erase_queued_count",
			"SELECT count(*) FROM queued_messages WHERE user_id = $1::text"}, "u"},
		 {{{"quipu_erase_queued",
			"WITH gone AS ("
			"  DELETE FROM queued_messages "
			"  WHERE " SOME("queued_messages", "user_id = $1::text")
			"  RETURNING id::text), "
			"known AS ("
			"  INSERT INTO sent_messages (message_id, sent_at) "
			"  SELECT id, quipu_now() FROM gone "
			"  ON CONFLICT (message_id) DO NOTHING) "
			"SELECT 1 FROM gone"}, "ul"}}},
		{{{"quipu_erase_outbound_count",
			"SELECT count(*) FROM outbound_messages WHERE aggregate_key = $1::text"}, "u"},
		 {{{"quipu_erase_outbound",
			"WITH gone AS ("
			"  DELETE FROM outbound_messages "
			"  WHERE " SOME("outbound_messages", "aggregate_key = $1::text")
			"  RETURNING message_id), "
			"known AS ("
			"  INSERT INTO sent_messages (message_id, sent_at) "
			"  SELECT message_id, quipu_now() FROM gone "
			"  ON CONFLICT (message_id) DO NOTHING) "
			"SELECT 1 FROM gone"}, "ul"}}},
		{{{"quipu_erase_outbound_letters_count",
			"SELECT count(*) FROM outbound_dlq WHERE aggregate_key = $1::text"}, "u"},
		 {{{"quipu_erase_outbound_letters",
			"DELETE FROM outbound_dlq WHERE " SOME("outbound_dlq", "aggregate_key = $1::text")
			"RETURNING 1"}, "ul"}}},
		{{{"quipu_erase_limits_count",
			"SELECT count(*) FROM rate_limit_store WHERE user_id = $1::text"}, "u"},
		 {{{"quipu_erase_limits",
			"DELETE FROM rate_limit_store WHERE " SOME("rate_limit_store", "user_id = $1::text")
			"RETURNING 1"}, "ul"}}},
	},
};
/* clang-format on */

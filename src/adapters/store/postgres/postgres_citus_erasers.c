/* The statements of the erasers on Citus. A ctid has no meaning across shards, so these statements
 * find rows by their keys. */
#include "adapters/store/postgres/postgres_citus.h"
#include "adapters/store/postgres/postgres_eraser.h"

/* clang-format off */
#define OTHERS                                                                             \
	"others AS MATERIALIZED ("                                                         \
	"  SELECT other_id FROM conversations WHERE user_id = $1::text)"
#define SENT "FROM others o JOIN messages m ON m.receiver_id = o.other_id "                \
	"WHERE m.sender_id = $1::text "
#define EVENTS                                                                             \
	"events AS MATERIALIZED ("                                                         \
	"  SELECT event_id FROM entitlement_audit "                                        \
	"  WHERE user_id = $1::text AND event_id IS NOT NULL)"
#define CHOSEN_EVENTS                                                                      \
	"SELECT o.event_id FROM events e JOIN outbox_events o USING (event_id) "           \
	PG_UNPUBLISHED_EVENTS

static const struct pg_statement erasers[] = {
	{"quipu_erase_received",
		"DELETE FROM messages WHERE receiver_id = $1::text AND id IN ("
		"  SELECT id FROM messages WHERE receiver_id = $1::text LIMIT $2::int8) "
		"RETURNING 1"},
	{"quipu_erase_sent_count",
		"WITH " OTHERS " SELECT count(*) " SENT "AND m.receiver_id <> $1::text"},
	{"quipu_erase_sent",
		"WITH " OTHERS ", chosen AS MATERIALIZED ("
		"  SELECT m.receiver_id, m.id " SENT "LIMIT $2::int8) "
		"UPDATE messages m SET sender_id = $3::text, text = '' "
		"FROM chosen c "
		"WHERE m.receiver_id = c.receiver_id AND m.id = c.id "
		"RETURNING 1"},
	{"quipu_erase_conversations_rename",
		"WITH others AS MATERIALIZED ("
		"  SELECT other_id FROM conversations WHERE user_id = $1::text "
		"  ORDER BY other_id LIMIT $2::int8), "
		"ends AS MATERIALIZED ("
		"  SELECT m.receiver_id, max(m.id) AS id "
		"  FROM others o "
		"  JOIN messages m ON m.receiver_id = o.other_id "
		"  WHERE m.sender_id = $3::text "
		"  GROUP BY m.receiver_id) "
		"INSERT INTO conversations AS c (user_id, other_id, last_span) "
		"SELECT receiver_id, $3::text, left(id, 7) FROM ends "
		"ON CONFLICT (user_id, other_id) DO UPDATE "
		"SET last_span = greatest(c.last_span, EXCLUDED.last_span)"},
	{"quipu_erase_unread",
		"WITH " CITUS_CLOCK " "
		"UPDATE counter_messages SET state = 'read', event_at = " CITUS_NOW " "
		"WHERE user_id = $1::text AND message_id IN ("
		"  SELECT message_id FROM counter_messages "
		"  WHERE user_id = $1::text AND state = 'unread' LIMIT $2::int8) "
		"RETURNING 1"},
	{"quipu_erase_counters",
		"DELETE FROM counters WHERE user_id = $1::text AND type IN ("
		"  SELECT type FROM counters WHERE user_id = $1::text LIMIT $2::int8) "
		"RETURNING 1"},
	{"quipu_erase_entitlement_events_count",
		"WITH " EVENTS " "
		"SELECT count(*) FROM (" CHOSEN_EVENTS ") AS e"},
	{"quipu_erase_entitlement_events",
		"WITH " EVENTS " "
		"DELETE FROM outbox_events "
		"WHERE event_id = ANY (ARRAY(" CHOSEN_EVENTS "LIMIT $3::int8)) "
		"RETURNING 1"},
	{"quipu_erase_sources",
		"DELETE FROM entitlement_sources "
		"WHERE user_id = $1::text AND (stock_keeping_unit, kind, source_id) IN ("
		"  SELECT stock_keeping_unit, kind, source_id FROM entitlement_sources "
		"  WHERE user_id = $1::text LIMIT $2::int8) "
		"RETURNING 1"},
	{"quipu_erase_entitlements",
		"DELETE FROM entitlements "
		"WHERE user_id = $1::text AND stock_keeping_unit IN ("
		"  SELECT stock_keeping_unit FROM entitlements "
		"  WHERE user_id = $1::text LIMIT $2::int8) "
		"RETURNING 1"},
	{"quipu_erase_limits",
		"DELETE FROM rate_limit_store WHERE user_id = $1::text AND $2::int8 > 0 "
		"RETURNING 1"},
};
/* clang-format on */

const struct pg_statements pg_citus_erasers = PG_STATEMENTS(erasers);

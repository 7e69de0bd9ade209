/*
 * On Citus, each statement in the arrays below replaces the plain statement of the same name. Both
 * statements have the same parameters and return the same columns. They differ for these reasons:
 *
 *   shards        Citus skips shards only if a condition names values of the distribution column. A
 *                 join with the rows of a batch names no values, so the statement would run on all
 *                 shards. CITUS_SHARDS adds a condition that names the values.
 *   locks         FOR UPDATE works on one shard only. Instead, an UPDATE that changes no value
 *                 locks the same rows, in the same order. It cannot skip rows that other sessions
 *                 have locked: it waits for such rows and fails after lock_timeout, and the caller
 *                 then runs smaller batches.
 *   sweeps        A statement that deletes expired rows chooses rows without locking them, and then
 *                 deletes only the chosen rows that have not changed since.
 *   time          A statement reads the time once, in the CTE `clock`, on the node to which Quipu
 *                 is connected. In UPDATE and RETURNING, only immutable functions may convert the
 *                 time: see CITUS_FROM_US and CITUS_TO_US.
 *   LATERAL       Citus does not support a LIMIT for each row of a batch. row_number() or max()
 *                 replaces the LIMIT.
 *   ctid          A ctid has no meaning across shards, so rows are found by their keys.
 *   joins         Tables that are not joined by their distribution columns are joined through
 *                 a CTE.
 *
 * A statement that reads several nodes does not read them all at the same moment, so a list may
 * show its rows as they were at slightly different times. No decision depends on such a list:
 * Quipu decides on rows that it has locked, or that it checks again when it writes them.
 *
 * Some tables stay on the coordinator (docs/SCALING.md): tables whose rows are claimed with SKIP
 * LOCKED; the tables of dead letters, processed events, and queued and sent messages, which are
 * written in the same transactions as claimed rows; pots, because they have unique names and
 * foreign keys; and other small tables. Statements that use only tables on the coordinator need no
 * replacement.
 */
#include "adapters/store/postgres/postgres_citus.h"

#include <assert.h>

/* clang-format off */
/* ---- Idempotency-Keys, distributed by key ------------------------------------------------- */

#define OWNED_KEYS                                                                         \
	"FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY "                 \
	"    AS w(scope, key, owner, n) "                                                  \
	"WHERE k.scope = w.scope AND k.key = w.key AND k.owner = w.owner "                 \
	CITUS_SHARDS("k.key", "$2")                                                              \
	"RETURNING w.n"

static_assert(IDEMPOTENCY_LEASE_US == 4000000, "quipu_keys_put repeats this value");

static const struct pg_statement keys[] = {
	/* The CTE `clock` selects from schema_migrations, because that table is only on the
	 * coordinator. Otherwise Citus would run the look-up of a single key entirely on the key's
	 * node, with that node's clock. */
	{"quipu_keys_find",
		"WITH clock AS MATERIALIZED ("
		"  SELECT quipu_now() AS now FROM schema_migrations LIMIT 1) "
		"SELECT w.n, k.fingerprint, k.status, k.content_type, k.location, k.body, "
		"    k.owner, k.note, k.lease_until <= " CITUS_NOW " "
		"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(scope, key, n) "
		"JOIN idempotency_keys k ON k.scope = w.scope AND k.key = w.key "
		"WHERE k.expires_at > " CITUS_NOW " " CITUS_SHARDS("k.key", "$2")},
	/* The condition after DO UPDATE may neither read the time nor use a parameter, so it
	 * derives the current time from the new row's lease_until, which is the current time plus
	 * the lease. */
	{"quipu_keys_put",
		"WITH " CITUS_CLOCK " "
		"INSERT INTO idempotency_keys AS k (scope, key, fingerprint, status, "
		"    content_type, location, body, owner, note, lease_until, expires_at) "
		"SELECT scope, key, fingerprint, status, content_type, location, body, "
		"    owner, note, " CITUS_NOW " + $10::int8 * interval '1 microsecond', "
		"    " CITUS_NOW " + $11::int8 * interval '1 microsecond' "
		"FROM unnest($1::text[], $2::text[], $3::bytea[], $4::int4[], "
		"    $5::text[], $6::text[], $7::bytea[], $8::text[], $9::text[]) "
		"    AS w(scope, key, fingerprint, status, content_type, location, body, "
		"    owner, note) "
		"ON CONFLICT (scope, key) "
		"DO UPDATE SET fingerprint = excluded.fingerprint, "
		"    status = excluded.status, content_type = excluded.content_type, "
		"    location = excluded.location, body = excluded.body, "
		"    owner = excluded.owner, note = excluded.note, "
		"    lease_until = excluded.lease_until, expires_at = excluded.expires_at "
		"WHERE timezone('UTC', k.expires_at) "
		"    <= timezone('UTC', excluded.lease_until) - interval '4 seconds' "
		"RETURNING 1"},
	{"quipu_keys_claim",
		"WITH " CITUS_CLOCK ", later AS MATERIALIZED ("
		"  SELECT now + $9::int8 * interval '1 microsecond' AS until FROM clock) "
		"UPDATE idempotency_keys AS k "
		"SET owner = w.owner, note = w.note, status = w.status, "
		"    content_type = w.content_type, location = w.location, body = w.body, "
		"    lease_until = (SELECT until FROM later) "
		"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int4[], "
		"    $6::text[], $7::text[], $8::bytea[]) WITH ORDINALITY "
		"    AS w(scope, key, owner, note, status, content_type, location, body, n) "
		"WHERE k.scope = w.scope AND k.key = w.key "
		"  AND k.owner <> '' AND k.lease_until <= " CITUS_NOW " " CITUS_SHARDS("k.key", "$2")
		"RETURNING w.n"},
	{"quipu_keys_finish",
		"UPDATE idempotency_keys AS k SET owner = '' " OWNED_KEYS},
	{"quipu_keys_forget",
		"DELETE FROM idempotency_keys AS k "
		"USING unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY "
		"    AS w(scope, key, owner, n) "
		"WHERE k.scope = w.scope AND k.key = w.key AND k.owner = w.owner "
		CITUS_SHARDS("k.key", "$2")
		"RETURNING w.n"},
	{"quipu_keys_release",
		"WITH " CITUS_CLOCK " "
		"UPDATE idempotency_keys AS k SET lease_until = " CITUS_NOW " " OWNED_KEYS},
	{"quipu_keys_sweep",
		"WITH " CITUS_CLOCK ", chosen AS MATERIALIZED ("
		"  SELECT scope, key, expires_at "
		"  FROM idempotency_keys "
		"  WHERE expires_at <= " CITUS_NOW " "
		"  ORDER BY scope, key LIMIT $1::int8) "
		"DELETE FROM idempotency_keys AS k "
		"USING chosen c "
		"WHERE k.scope = c.scope AND k.key = c.key "
		"  AND k.expires_at = c.expires_at "
		"RETURNING 1"},
};

/* ---- counts, distributed by item_id -------------------------------------------------------- */

#define COUNTS_FROM                                                                        \
	"FROM unnest($1::text[]) WITH ORDINALITY AS w(id, n) "

#define COUNTS_LOCK                                                                        \
	"UPDATE count_values AS c SET current_value = c.current_value " COUNTS_FROM        \
	"WHERE c.item_id = w.id " CITUS_SHARDS("c.item_id", "$1")                                \
	"RETURNING w.n, c.current_value, " CITUS_TO_US("c.last_updated_at") ", "                 \
	"    c.min_value, c.max_value"

static const struct pg_statement counts[] = {
	{"quipu_counts_add",
		"WITH " CITUS_CLOCK " "
		"UPDATE count_values AS c "
		"SET current_value = c.current_value + a.sum, last_updated_at = " CITUS_NOW " "
		"FROM unnest($1::text[], $2::int8[], $3::int8[], $4::int8[]) "
		"    WITH ORDINALITY AS a(item_id, sum, lowest, highest, n) "
		"WHERE c.item_id = a.item_id "
		"  AND CASE WHEN c.current_value "
		"        BETWEEN '-9223372036854775808'::int8 - a.lowest "
		"            AND 9223372036854775807 - a.highest "
		"      THEN (c.min_value IS NULL OR c.current_value + a.lowest >= c.min_value) "
		"       AND (c.max_value IS NULL OR c.current_value + a.highest <= c.max_value) "
		"      ELSE false END "
		CITUS_SHARDS("c.item_id", "$1")
		"RETURNING a.n, c.current_value"},
	{"quipu_counts_find",
		"SELECT w.n, c.current_value, " CITUS_TO_US("c.last_updated_at") ", "
		"    c.min_value, c.max_value " COUNTS_FROM
		"JOIN count_values c ON c.item_id = w.id " CITUS_SHARDS("c.item_id", "$1")},
	{"quipu_counts_lock", COUNTS_LOCK},
	{"quipu_counts_lock_free", COUNTS_LOCK},
	{"quipu_counts_update",
		"UPDATE count_values AS c "
		"SET current_value = e.value, min_value = e.min, max_value = e.max, "
		"    last_updated_at = " CITUS_FROM_US("$5::int8") " "
		"FROM unnest($1::text[], $2::int8[], $3::int8[], $4::int8[]) "
		"    AS e(item_id, value, min, max) "
		"WHERE c.item_id = e.item_id " CITUS_SHARDS("c.item_id", "$1")},
};

/* ---- limits, distributed by user_id -------------------------------------------------------- */

#define LIMITS_COLUMNS                                                                     \
	"w.n, l.rate_limit, l.time_window, l.current_count, l.reserved_count, "            \
	CITUS_TO_US("l.last_refresh_time") ", l.shadow, l.by_default "
#define LIMITS_FROM                                                                        \
	"FROM unnest($1::text[]) WITH ORDINALITY AS w(id, n) "
#define LIMITS_LOCK                                                                        \
	"UPDATE rate_limit_store AS l SET rate_limit = l.rate_limit " LIMITS_FROM          \
	"WHERE l.user_id = w.id " CITUS_SHARDS("l.user_id", "$1")                                \
	"RETURNING " LIMITS_COLUMNS

static const struct pg_statement limits[] = {
	{"quipu_limits_find",
		"SELECT " LIMITS_COLUMNS LIMITS_FROM
		"JOIN rate_limit_store l ON l.user_id = w.id " CITUS_SHARDS("l.user_id", "$1")},
	{"quipu_limits_lock", LIMITS_LOCK},
	{"quipu_limits_lock_free", LIMITS_LOCK},
	{"quipu_limits_update",
		"UPDATE rate_limit_store AS l "
		"SET rate_limit = e.rate_limit, time_window = e.time_window, "
		"    current_count = e.current_count, reserved_count = e.reserved_count, "
		"    last_refresh_time = " CITUS_FROM_US("e.refresh_us") ", "
		"    shadow = e.shadow <> 0, by_default = e.by_default <> 0 "
		"FROM unnest($1::text[], $2::int4[], $3::int4[], $4::int4[], $5::int4[], "
		"    $6::int8[], $7::int4[], $8::int4[]) AS e(user_id, rate_limit, "
		"    time_window, current_count, reserved_count, refresh_us, shadow, "
		"    by_default) "
		"WHERE l.user_id = e.user_id " CITUS_SHARDS("l.user_id", "$1")},
	{"quipu_limits_settle",
		"UPDATE rate_limit_store AS l "
		"SET current_count = l.current_count + e.confirmed, "
		"    reserved_count = l.reserved_count - e.given_back "
		"FROM unnest($1::text[], $2::int8[], $3::int4[], $4::int4[]) "
		"    AS e(user_id, window_us, confirmed, given_back) "
		"WHERE l.user_id = e.user_id "
		"  AND l.last_refresh_time = " CITUS_FROM_US("e.window_us") " "
		CITUS_SHARDS("l.user_id", "$1")},
	{"quipu_limits_sweep",
		"WITH " CITUS_CLOCK ", chosen AS MATERIALIZED ("
		"  SELECT user_id, last_refresh_time, by_default "
		"  FROM rate_limit_store "
		"  WHERE by_default "
		"    AND last_refresh_time < " CITUS_NOW " - $1::int8 * interval '1 microsecond' "
		"    AND last_refresh_time "
		"      < " CITUS_NOW " - time_window * $1::int8 * interval '1 microsecond' "
		"  ORDER BY last_refresh_time LIMIT $2::int8) "
		"DELETE FROM rate_limit_store AS l "
		"USING chosen c "
		"WHERE l.user_id = c.user_id AND l.by_default = c.by_default "
		"  AND l.last_refresh_time = c.last_refresh_time "
		"RETURNING 1"},
};

/* ---- messages, distributed by receiver_id, and conversations, distributed by user_id -------- */

#define MARKS                                                                              \
	"unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(receiver_id, id, n) "

static const struct pg_statement messages[] = {
	{"quipu_messages_mark",
		"UPDATE messages AS m SET is_read = true FROM " MARKS
		"WHERE m.receiver_id = w.receiver_id AND m.id = w.id AND NOT m.is_read "
		CITUS_SHARDS("m.receiver_id", "$1")
		"RETURNING w.n"},
	{"quipu_messages_exist",
		"SELECT w.n FROM " MARKS
		"JOIN messages m ON m.receiver_id = w.receiver_id AND m.id = w.id "
		CITUS_SHARDS("m.receiver_id", "$1")},
	{"quipu_messages_directions",
		"SELECT receiver_id, sender_id FROM messages "
		"WHERE (receiver_id, sender_id) > ($1::text, $2::text) "
		"GROUP BY receiver_id, sender_id "
		"ORDER BY receiver_id, sender_id LIMIT $3::int8"},
	{"quipu_conversations_find",
		"SELECT w.n, c.last_span "
		"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(user_id, other_id, n) "
		"JOIN conversations c ON c.user_id = w.user_id AND c.other_id = w.other_id "
		CITUS_SHARDS("c.user_id", "$1")},
	{"quipu_conversations_end",
		"WITH known AS MATERIALIZED ("
		"  SELECT w.n "
		"  FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY "
		"      AS w(user_id, other_id, last_id, n) "
		"  JOIN conversations f ON f.user_id = w.user_id "
		"    AND f.other_id = w.other_id AND f.last_span >= left(w.last_id, 7) "
		"  " CITUS_SHARDS("f.user_id", "$1") ") "
		"INSERT INTO conversations AS c (user_id, other_id, last_span) "
		"SELECT w.user_id, w.other_id, left(w.last_id, 7) "
		"FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY "
		"    AS w(user_id, other_id, last_id, n) "
		"WHERE w.n NOT IN (SELECT n FROM known) "
		"ON CONFLICT (user_id, other_id) DO UPDATE "
		"SET last_span = EXCLUDED.last_span "
		"WHERE c.last_span < EXCLUDED.last_span"},
	/* Looks for the last message of a conversation only in the conversation's last span, among
	 * the messages that the user received and among those that the user sent. */
	{"quipu_conversations_list",
		"WITH near AS MATERIALIZED ("
		"  SELECT other_id, last_span FROM conversations "
		"  WHERE user_id = $1::text AND last_span = left($2::text, 7) "
		"  UNION ALL "
		"  (SELECT other_id, last_span FROM conversations "
		"   WHERE user_id = $1::text AND last_span < left($2::text, 7) "
		"   ORDER BY last_span DESC FETCH FIRST ($3::int8) ROWS WITH TIES)), "
		"received AS MATERIALIZED ("
		"  SELECT m.sender_id AS other_id, max(m.id) AS id "
		"  FROM near n "
		"  JOIN messages m ON m.sender_id = n.other_id AND m.id >= n.last_span "
		"  WHERE m.receiver_id = $1::text "
		"  GROUP BY m.sender_id), "
		"sent AS MATERIALIZED ("
		"  SELECT m.receiver_id AS other_id, max(m.id) AS id "
		"  FROM near n "
		"  JOIN messages m ON m.receiver_id = n.other_id AND m.id >= n.last_span "
		"  WHERE m.sender_id = $1::text "
		"  GROUP BY m.receiver_id), "
		"page AS MATERIALIZED ("
		"  SELECT * FROM ("
		"    SELECT DISTINCT ON (other_id) other_id, receiver_id, id FROM ("
		"      SELECT other_id, $1::text AS receiver_id, id FROM received "
		"      UNION ALL SELECT other_id, other_id, id FROM sent) AS both_ways "
		"    ORDER BY other_id, id DESC) AS newest "
		"  WHERE id < $2::text "
		"  ORDER BY id DESC LIMIT $3::int8), "
		"found AS MATERIALIZED ("
		"  SELECT m.receiver_id, m.id, m.sender_id, m.text, m.created_at, "
		"    m.is_read, p.other_id "
		"  FROM page p "
		"  JOIN messages m ON m.receiver_id = p.receiver_id AND m.id = p.id), "
		"unread AS MATERIALIZED ("
		"  SELECT u.sender_id, count(*) AS unread_count "
		"  FROM page p "
		"  JOIN messages u ON u.sender_id = p.other_id "
		"  WHERE u.receiver_id = $1::text AND NOT u.is_read "
		"  GROUP BY u.sender_id) "
		"SELECT s.receiver_id, s.id, s.sender_id, s.text, " CITUS_TO_US("s.created_at") ", "
		"  s.is_read, s.other_id, coalesce(u.unread_count, 0) "
		"FROM ("
		"  SELECT f.*, sum(octet_length(f.text)) OVER (ORDER BY f.id DESC ROWS "
		"      BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer_text "
		"  FROM found f) AS s "
		"LEFT JOIN unread u ON u.sender_id = s.other_id "
		"WHERE coalesce(s.newer_text, 0) <= $4::int8 "
		"ORDER BY s.id DESC"},
};

/* ---- counters, distributed by user_id -------------------------------------------------------- */

static const struct pg_statement counters[] = {
	{"quipu_counter_messages_find",
		"SELECT w.n, m.state = 'read', " CITUS_TO_US("m.event_at") " "
		"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY "
		"    AS w(user_id, message_id, n) "
		"JOIN counter_messages m ON m.user_id = w.user_id "
		"  AND m.message_id = w.message_id " CITUS_SHARDS("m.user_id", "$1")},
	{"quipu_counter_messages_update",
		"UPDATE counter_messages AS m "
		"SET state = w.state, event_at = " CITUS_FROM_US("w.event_us") " "
		"FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[]) "
		"    AS w(user_id, message_id, state, event_us) "
		"WHERE m.user_id = w.user_id AND m.message_id = w.message_id "
		"  AND m.state = 'unread' " CITUS_SHARDS("m.user_id", "$1")
		"RETURNING 1"},
	{"quipu_counters_add",
		"WITH " CITUS_CLOCK " "
		"UPDATE counters AS c "
		"SET count = c.count + w.delta, version = c.version + 1, "
		"    last_updated = " CITUS_NOW " "
		"FROM unnest($1::text[], $2::int8[]) WITH ORDINALITY "
		"    AS w(user_id, delta, n) "
		"WHERE c.user_id = w.user_id AND c.type = 'UnreadMessages' "
		CITUS_SHARDS("c.user_id", "$1")
		"RETURNING w.n, c.count, c.version, " CITUS_TO_US("c.last_updated")},
	{"quipu_counters_make",
		"WITH " CITUS_CLOCK " "
		"INSERT INTO counters AS c (user_id, type, count, last_updated, version) "
		"SELECT w.user_id, 'UnreadMessages', w.delta, " CITUS_NOW ", "
		"  greatest(1, " CITUS_TO_US(CITUS_NOW) " / 1000) "
		"FROM unnest($1::text[], $2::int8[]) AS w(user_id, delta) "
		"ON CONFLICT (user_id, type) DO NOTHING "
		"RETURNING c.user_id, c.count, c.version, " CITUS_TO_US("c.last_updated")},
	{"quipu_counters_find",
		"SELECT w.n, c.count, c.version, " CITUS_TO_US("c.last_updated") " "
		"FROM unnest($1::text[]) WITH ORDINALITY AS w(user_id, n) "
		"JOIN counters c ON c.user_id = w.user_id AND c.type = 'UnreadMessages' "
		CITUS_SHARDS("c.user_id", "$1")},
};

/* clang-format on */

static const struct pg_statements key_statements = PG_STATEMENTS(keys);
static const struct pg_statements count_statements = PG_STATEMENTS(counts);
static const struct pg_statements limit_statements = PG_STATEMENTS(limits);
static const struct pg_statements message_statements = PG_STATEMENTS(messages);
static const struct pg_statements counter_statements = PG_STATEMENTS(counters);

static const struct pg_statements *const tables[] = {
	&key_statements,
	&count_statements,
	&limit_statements,
	&message_statements,
	&counter_statements,
	&pg_citus_entitlements,
	&pg_citus_facts,
	&pg_citus_erasers,
	NULL,
};

/*
 * Citus commits a transaction in two phases if the transaction changed several shards. A table that
 * stays on the coordinator does not count as a shard. If the transaction changed only one shard,
 * Citus commits first on the shard's node and then on the coordinator; if the coordinator dies in
 * between, the changes to tables on the coordinator are lost. Citus has no setting and no function
 * that requests two phases, but it always uses two phases after an INSERT … SELECT whose SELECT
 * runs on the coordinator, even if the INSERT inserts no row. The statement below is such an
 * INSERT. It uses idempotency_keys, because every database has that table.
 */
static const struct pg_statement two_phases = {
	"quipu_two_phases",
	"INSERT INTO idempotency_keys (scope, key, fingerprint, expires_at) "
	"SELECT '', '', '', timestamptz 'epoch' WHERE false",
};

const struct pg_dialect pg_dialect_citus = {
	.name = "Citus",
	.settings = "SET plan_cache_mode = force_custom_plan; "
		    "SET citus.multi_shard_modify_mode = 'sequential'",
	.two_phases = &two_phases,
	.tables = tables,
};

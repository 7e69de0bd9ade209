-- Messages to be sent, one row per message of the bus; the row also tells a repeated event apart. `id` is the
-- message's id, or a UUID derived from it if it is none, or from its position on the bus if it has none.
-- The columns of a claim have the names that all such tables share: event_type is 'sms', aggregate_key the
-- user's id. For `stage` see sql/postgres/notifications/0001_notifications.sql.
CREATE TABLE outbound_messages (
	id uuid PRIMARY KEY,
	message_id text COLLATE "C" NOT NULL,
	event_type text NOT NULL DEFAULT 'sms',
	aggregate_key text COLLATE "C" NOT NULL,
	trace_id text NOT NULL,
	payload bytea NOT NULL,
	occurred_at timestamptz NOT NULL,
	status text NOT NULL DEFAULT 'PENDING'
		CHECK (status IN ('PENDING', 'SENDING', 'SENT', 'FAILED', 'DISCARDED')),
	attempt_count integer NOT NULL DEFAULT 0,
	next_retry_at timestamptz,
	locked_by text,
	locked_at timestamptz,
	lease_until timestamptz,
	claim_epoch bigint NOT NULL DEFAULT 0,
	last_error text,
	created_at timestamptz NOT NULL,
	sent_at timestamptz,
	stage text NOT NULL GENERATED ALWAYS AS
		(CASE WHEN status IN ('PENDING', 'SENDING') THEN 'OPEN' ELSE status END) STORED
) WITH (
	fillfactor = 50,
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX outbound_messages_open ON outbound_messages (created_at) WHERE stage = 'OPEN';
CREATE INDEX outbound_messages_failed ON outbound_messages (id) WHERE stage = 'FAILED';
CREATE INDEX outbound_messages_ended ON outbound_messages (coalesce(sent_at, created_at))
	WHERE stage IN ('SENT', 'FAILED', 'DISCARDED');
CREATE INDEX outbound_messages_user ON outbound_messages (aggregate_key);

-- Messages that were given up, under their own id. A letter waits for an operator until resolved_at is set.
CREATE TABLE outbound_dlq (
	id uuid PRIMARY KEY,
	kind text NOT NULL,
	event_type text NOT NULL,
	aggregate_key text NOT NULL,
	position text COLLATE "C" NOT NULL,
	last_error text NOT NULL,
	payload bytea NOT NULL,
	attempt_count integer NOT NULL,
	created_at timestamptz NOT NULL,
	resolved_at timestamptz,
	resolution text
);

CREATE INDEX outbound_dlq_waiting ON outbound_dlq (kind, id) WHERE resolved_at IS NULL;

-- The events that were applied; written together with their notification.
CREATE TABLE processed_events (
	event_id text COLLATE "C" PRIMARY KEY,
	processed_at timestamptz NOT NULL
);

CREATE INDEX processed_events_processed_at ON processed_events (processed_at);

-- Notifications to be sent. `stage` groups the statuses so that a claim does not change it. Every index
-- below uses stage and none uses status, so claiming a row or returning it touches no index (HOT;
-- fillfactor leaves the free space for that), and the planner uses these indexes only for statements that
-- name a stage.
CREATE TABLE notifications (
	notification_id uuid PRIMARY KEY,
	event_id text COLLATE "C" NOT NULL,
	event_type text NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	stock_keeping_unit text COLLATE "C" NOT NULL,
	version bigint NOT NULL,
	aggregate_key text NOT NULL,
	trace_id text NOT NULL,
	payload bytea NOT NULL,
	occurred_at timestamptz NOT NULL,
	status text NOT NULL DEFAULT 'PENDING'
		CHECK (status IN ('PENDING', 'PROCESSING', 'SENT', 'FAILED', 'DISCARDED')),
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
		(CASE WHEN status IN ('PENDING', 'PROCESSING') THEN 'OPEN' ELSE status END) STORED
) WITH (
	fillfactor = 50,
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX notifications_open ON notifications (created_at) WHERE stage = 'OPEN';
CREATE INDEX notifications_failed ON notifications (notification_id) WHERE stage = 'FAILED';
CREATE INDEX notifications_ended ON notifications (coalesce(sent_at, created_at))
	WHERE stage IN ('SENT', 'FAILED', 'DISCARDED');
CREATE INDEX notifications_user ON notifications (user_id, created_at, occurred_at, notification_id);

-- Dead letters: notifications that were given up, under their own id, and messages that could not be read,
-- one row per position on the bus. A dead letter waits for an operator until resolved_at is set.
CREATE TABLE notification_dlq (
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

CREATE UNIQUE INDEX notification_dlq_position ON notification_dlq (position) WHERE position <> '';
CREATE INDEX notification_dlq_waiting ON notification_dlq (kind, id) WHERE resolved_at IS NULL;

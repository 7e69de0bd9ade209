-- The events that were applied; written together with their notification. Times are
-- microseconds since 1970.
CREATE TABLE processed_events (
	event_id TEXT NOT NULL PRIMARY KEY,
	processed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX processed_events_processed_at ON processed_events (processed_at);

-- Notifications to be sent. The table has a rowid because its rows are wide.
CREATE TABLE notifications (
	notification_id TEXT NOT NULL PRIMARY KEY,
	event_id TEXT NOT NULL,
	event_type TEXT NOT NULL,
	user_id TEXT NOT NULL,
	stock_keeping_unit TEXT NOT NULL,
	version INTEGER NOT NULL,
	aggregate_key TEXT NOT NULL,
	trace_id TEXT NOT NULL,
	payload BLOB NOT NULL,
	occurred_at INTEGER NOT NULL,
	status TEXT NOT NULL DEFAULT 'PENDING'
		CHECK (status IN ('PENDING', 'PROCESSING', 'SENT', 'FAILED', 'DISCARDED')),
	attempt_count INTEGER NOT NULL DEFAULT 0,
	next_retry_at INTEGER,
	locked_by TEXT,
	locked_at INTEGER,
	lease_until INTEGER,
	claim_epoch INTEGER NOT NULL DEFAULT 0,
	last_error TEXT,
	created_at INTEGER NOT NULL,
	sent_at INTEGER
) STRICT;

CREATE INDEX notifications_open ON notifications (created_at) WHERE status IN ('PENDING', 'PROCESSING');
CREATE INDEX notifications_failed ON notifications (notification_id) WHERE status = 'FAILED';
CREATE INDEX notifications_ended ON notifications (coalesce(sent_at, created_at))
	WHERE status IN ('SENT', 'FAILED', 'DISCARDED');
CREATE INDEX notifications_user ON notifications (user_id, created_at, occurred_at, notification_id);

-- Dead letters: notifications that were given up, under their own id, and messages that could not be read,
-- one row per position on the bus. A dead letter waits for an operator until resolved_at is set.
CREATE TABLE notification_dlq (
	id TEXT NOT NULL PRIMARY KEY,
	kind TEXT NOT NULL,
	event_type TEXT NOT NULL,
	aggregate_key TEXT NOT NULL,
	position TEXT NOT NULL,
	last_error TEXT NOT NULL,
	payload BLOB NOT NULL,
	attempt_count INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	resolved_at INTEGER,
	resolution TEXT
) STRICT;

CREATE UNIQUE INDEX notification_dlq_position ON notification_dlq (position) WHERE position <> '';
CREATE INDEX notification_dlq_waiting ON notification_dlq (kind, id) WHERE resolved_at IS NULL;

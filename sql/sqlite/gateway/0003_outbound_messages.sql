-- Messages to be sent, one row per message of the bus; the row also tells a repeated event apart. `id` is the
-- message's id, or a UUID derived from it if it is none, or from its position on the bus if it has none.
-- The table has a rowid because its rows are wide. Times are microseconds since 1970. The columns of a
-- claim have the names that all such tables share: event_type is 'sms', aggregate_key the user's id.
CREATE TABLE outbound_messages (
	id TEXT NOT NULL PRIMARY KEY,
	message_id TEXT NOT NULL,
	event_type TEXT NOT NULL DEFAULT 'sms',
	aggregate_key TEXT NOT NULL,
	trace_id TEXT NOT NULL,
	payload BLOB NOT NULL,
	occurred_at INTEGER NOT NULL,
	status TEXT NOT NULL DEFAULT 'PENDING'
		CHECK (status IN ('PENDING', 'SENDING', 'SENT', 'FAILED', 'DISCARDED')),
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

CREATE INDEX outbound_messages_open ON outbound_messages (created_at) WHERE status IN ('PENDING', 'SENDING');
CREATE INDEX outbound_messages_failed ON outbound_messages (id) WHERE status = 'FAILED';
CREATE INDEX outbound_messages_ended ON outbound_messages (coalesce(sent_at, created_at))
	WHERE status IN ('SENT', 'FAILED', 'DISCARDED');
CREATE INDEX outbound_messages_user ON outbound_messages (aggregate_key);

-- Messages that were given up, under their own id. A letter waits for an operator until resolved_at is set.
CREATE TABLE outbound_dlq (
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

CREATE INDEX outbound_dlq_waiting ON outbound_dlq (kind, id) WHERE resolved_at IS NULL;

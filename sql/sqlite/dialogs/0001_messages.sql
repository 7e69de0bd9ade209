-- Messages, stored by receiver. Ids sort by time. messages_dialog finds one direction of a dialog; swap the
-- two users to find the other one. messages_unread is for quipu verify, which would otherwise scan every
-- message ever read. The table has a rowid because its rows are wide.
-- Times are microseconds since 1970.
CREATE TABLE messages (
	receiver_id TEXT NOT NULL,
	id TEXT NOT NULL,
	sender_id TEXT NOT NULL,
	text TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	is_read INTEGER NOT NULL DEFAULT 0 CHECK (is_read IN (0, 1)),
	PRIMARY KEY (receiver_id, id)
) STRICT;

CREATE INDEX messages_dialog ON messages (receiver_id, sender_id, id);
CREATE INDEX messages_unread ON messages (receiver_id, id) WHERE is_read = 0;

-- Events that wait to be published: the columns of the specification, and claim_epoch, which distinguishes
-- one claim of a row from the next. The table has a rowid because its rows are wide and their ids random.
CREATE TABLE dialog_outbox_events (
	event_id TEXT NOT NULL PRIMARY KEY,
	event_type TEXT NOT NULL,
	aggregate_key TEXT NOT NULL,
	trace_id TEXT NOT NULL,
	payload BLOB NOT NULL,
	status TEXT NOT NULL DEFAULT 'PENDING'
		CHECK (status IN ('PENDING', 'IN_FLIGHT', 'PUBLISHED', 'FAILED', 'DISCARDED')),
	attempt_count INTEGER NOT NULL DEFAULT 0,
	next_retry_at INTEGER,
	locked_by TEXT,
	locked_at INTEGER,
	lease_until INTEGER,
	claim_epoch INTEGER NOT NULL DEFAULT 0,
	last_error TEXT,
	created_at INTEGER NOT NULL,
	published_at INTEGER
) STRICT;

CREATE INDEX dialog_outbox_events_open ON dialog_outbox_events (created_at) WHERE status IN ('PENDING', 'IN_FLIGHT');
CREATE INDEX dialog_outbox_events_failed ON dialog_outbox_events (event_id) WHERE status = 'FAILED';
CREATE INDEX dialog_outbox_events_ended ON dialog_outbox_events (published_at) WHERE status = 'PUBLISHED';

-- Times are microseconds since 1970.
CREATE TABLE entitlements (
	user_id TEXT NOT NULL,
	stock_keeping_unit TEXT NOT NULL,
	status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'REVOKED')),
	version INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (user_id, stock_keeping_unit)
) STRICT, WITHOUT ROWID;

-- Events that wait to be published: the columns of the specification, and claim_epoch, which distinguishes
-- one claim of a row from the next. The table has a rowid because its rows are wide.
CREATE TABLE outbox_events (
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

CREATE INDEX outbox_events_open ON outbox_events (created_at) WHERE status IN ('PENDING', 'IN_FLIGHT');
CREATE INDEX outbox_events_failed ON outbox_events (event_id) WHERE status = 'FAILED';
CREATE INDEX outbox_events_ended ON outbox_events (published_at) WHERE status = 'PUBLISHED';

-- The history of every change.
CREATE TABLE entitlement_audit (
	occurred_at INTEGER NOT NULL,
	user_id TEXT NOT NULL,
	stock_keeping_unit TEXT NOT NULL,
	action TEXT NOT NULL CHECK (action IN ('GRANTED', 'REVOKED')),
	version INTEGER NOT NULL,
	reason TEXT NOT NULL,
	purchase_id TEXT NOT NULL,
	event_id TEXT NOT NULL,
	PRIMARY KEY (occurred_at, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX entitlement_audit_entitlement ON entitlement_audit (user_id, stock_keeping_unit, version);

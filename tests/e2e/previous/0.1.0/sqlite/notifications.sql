BEGIN TRANSACTION;
CREATE TABLE idempotency_keys (
	scope TEXT NOT NULL,
	key TEXT NOT NULL,
	fingerprint BLOB NOT NULL,
	status INTEGER NOT NULL,
	content_type TEXT NOT NULL,
	location TEXT NOT NULL,
	body BLOB NOT NULL,
	owner TEXT NOT NULL,
	lease_until INTEGER NOT NULL,
	note TEXT NOT NULL,
	expires_at INTEGER NOT NULL,
	PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;
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
INSERT INTO "notifications" VALUES('3f93bdcd-e9a5-4f93-9a1e-ffb86bf78081','01a1e5f9-f3e1-761c-9727-00a2525aa9f9','EntitlementGranted','u_1','item1',1,'u_1:item1','',X'0A2430316131653566392D663365312D373631632D393732372D3030613235323561613966391212456E7469746C656D656E744772616E7465641A0C08CDC5EDD70610F098A8FA022203755F312A056974656D31320870757263686173653A03705F314001',1794859725793382,'SENT',0,NULL,'914ba4c2-d57a-4db9-938f-73a3525b7d0b',1794859725798070,NULL,1,NULL,1794859725796316,1794859725798858);
CREATE TABLE operator_actions (
	id INTEGER PRIMARY KEY,
	at INTEGER NOT NULL,
	action TEXT NOT NULL,
	target TEXT NOT NULL,
	detail TEXT NOT NULL
) STRICT;
CREATE TABLE processed_events (
	event_id TEXT NOT NULL PRIMARY KEY,
	processed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "processed_events" VALUES('01a1e5f9-f3e1-761c-9727-00a2525aa9f9',1794859725796222);
CREATE TABLE schema_migrations (component TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (component, version)) STRICT, WITHOUT ROWID;
INSERT INTO "schema_migrations" VALUES('common',1,'base',1794859725195376);
INSERT INTO "schema_migrations" VALUES('common',2,'operator_actions',1794859725215235);
INSERT INTO "schema_migrations" VALUES('notifications',1,'notifications',1794859725220443);
CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);
CREATE INDEX processed_events_processed_at ON processed_events (processed_at);
CREATE INDEX notifications_open ON notifications (created_at) WHERE status IN ('PENDING', 'PROCESSING');
CREATE INDEX notifications_failed ON notifications (notification_id) WHERE status = 'FAILED';
CREATE INDEX notifications_ended ON notifications (coalesce(sent_at, created_at))
	WHERE status IN ('SENT', 'FAILED', 'DISCARDED');
CREATE INDEX notifications_user ON notifications (user_id, created_at, occurred_at, notification_id);
CREATE UNIQUE INDEX notification_dlq_position ON notification_dlq (position) WHERE position <> '';
CREATE INDEX notification_dlq_waiting ON notification_dlq (kind, id) WHERE resolved_at IS NULL;
COMMIT;
PRAGMA user_version = 0;
PRAGMA application_id = 0;

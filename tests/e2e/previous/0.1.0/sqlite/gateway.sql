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
CREATE TABLE operator_actions (
	id INTEGER PRIMARY KEY,
	at INTEGER NOT NULL,
	action TEXT NOT NULL,
	target TEXT NOT NULL,
	detail TEXT NOT NULL
) STRICT;
CREATE TABLE rate_limit_store (
	user_id TEXT NOT NULL PRIMARY KEY,
	rate_limit INTEGER NOT NULL,
	time_window INTEGER NOT NULL,
	current_count INTEGER NOT NULL DEFAULT 0,
	last_refresh_time INTEGER NOT NULL,
	reserved_count INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
INSERT INTO "rate_limit_store" VALUES('7',5,525600,1,1794859725781099,1);
CREATE TABLE schema_migrations (component TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (component, version)) STRICT, WITHOUT ROWID;
INSERT INTO "schema_migrations" VALUES('common',1,'base',1794859724957226);
INSERT INTO "schema_migrations" VALUES('common',2,'operator_actions',1794859724960247);
INSERT INTO "schema_migrations" VALUES('gateway',1,'rate_limit_store',1794859724966216);
CREATE TABLE sent_messages (
	message_id TEXT NOT NULL PRIMARY KEY,
	sent_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "sent_messages" VALUES('63199557-0fc3-43e8-9025-30b1374a4e43',1794859725798279);
CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);
CREATE INDEX sent_messages_sent_at ON sent_messages (sent_at);
COMMIT;
PRAGMA user_version = 0;
PRAGMA application_id = 0;

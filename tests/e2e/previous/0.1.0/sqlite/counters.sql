BEGIN TRANSACTION;
CREATE TABLE counter_messages (
	user_id TEXT NOT NULL,
	message_id TEXT NOT NULL,
	state TEXT NOT NULL CHECK (state IN ('unread', 'read')),
	event_at INTEGER NOT NULL,
	PRIMARY KEY (user_id, message_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "counter_messages" VALUES('dave','01a1e5f9-f42b-7600-a5b5-46058b4b873b','unread',1794859725867375);
INSERT INTO "counter_messages" VALUES('dave','01a1e5f9-f43c-714b-8734-95d2f7b9c393','unread',1794859725884081);
CREATE TABLE counters (
	user_id TEXT NOT NULL,
	type TEXT NOT NULL,
	count INTEGER NOT NULL CHECK (count >= 0),
	last_updated INTEGER NOT NULL,
	version INTEGER NOT NULL,
	PRIMARY KEY (user_id, type)
) STRICT, WITHOUT ROWID;
INSERT INTO "counters" VALUES('dave','UnreadMessages',2,1794859725894789,1);
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
CREATE TABLE schema_migrations (component TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (component, version)) STRICT, WITHOUT ROWID;
INSERT INTO "schema_migrations" VALUES('common',1,'base',1794859725504872);
INSERT INTO "schema_migrations" VALUES('common',2,'operator_actions',1794859725525973);
INSERT INTO "schema_migrations" VALUES('counters',1,'counters',1794859725528753);
CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);
CREATE INDEX counter_messages_unread ON counter_messages (user_id, message_id) WHERE state = 'unread';
CREATE INDEX counter_messages_read ON counter_messages (event_at) WHERE state = 'read';
COMMIT;
PRAGMA user_version = 0;
PRAGMA application_id = 0;

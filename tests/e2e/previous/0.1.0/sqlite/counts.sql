BEGIN TRANSACTION;
CREATE TABLE count_values (
	item_id TEXT NOT NULL PRIMARY KEY,
	current_value INTEGER NOT NULL DEFAULT 0,
	last_updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "count_values" VALUES('visits',7,1794859725762761);
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
INSERT INTO "idempotency_keys" VALUES('POST /api/v1/counts/{itemId}/increase','order-1',X'880B9214A6E76ADA1BBF944D24590E3BCD64FEAC56D66A4D05B6AEF4CA6CB06B',200,'application/json','',X'7B226974656D4964223A22766973697473222C2276616C7565223A377D','',1794859729762889,'',1794946125762889);
CREATE TABLE operator_actions (
	id INTEGER PRIMARY KEY,
	at INTEGER NOT NULL,
	action TEXT NOT NULL,
	target TEXT NOT NULL,
	detail TEXT NOT NULL
) STRICT;
CREATE TABLE schema_migrations (component TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (component, version)) STRICT, WITHOUT ROWID;
INSERT INTO "schema_migrations" VALUES('common',1,'base',1794859724861521);
INSERT INTO "schema_migrations" VALUES('common',2,'operator_actions',1794859724889302);
INSERT INTO "schema_migrations" VALUES('counts',1,'count_values',1794859724890187);
CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);
COMMIT;
PRAGMA user_version = 0;
PRAGMA application_id = 0;

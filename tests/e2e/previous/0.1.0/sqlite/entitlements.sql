BEGIN TRANSACTION;
CREATE TABLE entitlement_audit (
	occurred_at INTEGER NOT NULL,
	user_id TEXT NOT NULL,
	stock_keeping_unit TEXT NOT NULL,
	version INTEGER NOT NULL,
	step INTEGER NOT NULL,
	action TEXT NOT NULL CHECK (action IN ('GRANTED', 'REVOKED')),
	reason TEXT NOT NULL,
	purchase_id TEXT,
	event_id TEXT,
	PRIMARY KEY (occurred_at, user_id, stock_keeping_unit, version, step)
) STRICT, WITHOUT ROWID;
INSERT INTO "entitlement_audit" VALUES(1794859725793382,'u_1','item1',1,0,'GRANTED','purchase','p_1','01a1e5f9-f3e1-761c-9727-00a2525aa9f9');
CREATE TABLE entitlement_sources (
	user_id TEXT NOT NULL,
	stock_keeping_unit TEXT NOT NULL,
	kind TEXT NOT NULL CHECK (kind IN ('purchase', 'reason', 'migrated')),
	source_id TEXT NOT NULL,
	reason TEXT NOT NULL,
	status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'REVOKED')),
	granted_at INTEGER NOT NULL,
	revoked_at INTEGER,
	CHECK ((status = 'REVOKED') = (revoked_at IS NOT NULL)),
	PRIMARY KEY (user_id, stock_keeping_unit, kind, source_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "entitlement_sources" VALUES('u_1','item1','purchase','p_1','purchase','ACTIVE',1794859725793382,NULL);
CREATE TABLE entitlements (
	user_id TEXT NOT NULL,
	stock_keeping_unit TEXT NOT NULL,
	status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'REVOKED')),
	version INTEGER NOT NULL,
	updated_at INTEGER NOT NULL, step INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (user_id, stock_keeping_unit)
) STRICT, WITHOUT ROWID;
INSERT INTO "entitlements" VALUES('u_1','item1','ACTIVE',1,1794859725793382,0);
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
INSERT INTO "idempotency_keys" VALUES('POST /v1/entitlements/grants','p_1',X'A778A203252713DF76AB6FC3409DBDBF6D1C4D8503FB7DB65C08ABB097AA4595',200,'application/json','',X'7B22757365725F6964223A22755F31222C2273746F636B5F6B656570696E675F756E6974223A226974656D31222C22737461747573223A22414354495645222C2276657273696F6E223A312C22757064617465645F6174223A22323032362D31312D31365432303A30383A34352E3739333338325A227D','',1794859729793816,'',1794946125793816);
CREATE TABLE operator_actions (
	id INTEGER PRIMARY KEY,
	at INTEGER NOT NULL,
	action TEXT NOT NULL,
	target TEXT NOT NULL,
	detail TEXT NOT NULL
) STRICT;
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
INSERT INTO "outbox_events" VALUES('01a1e5f9-f3e1-761c-9727-00a2525aa9f9','EntitlementGranted','u_1:item1','',X'0A2430316131653566392D663365312D373631632D393732372D3030613235323561613966391212456E7469746C656D656E744772616E7465641A0C08CDC5EDD70610F098A8FA022203755F312A056974656D31320870757263686173653A03705F314001','PUBLISHED',0,NULL,'3e854410-d190-4e8b-a9d2-9b3c30728f1e',1794859725794611,NULL,1,NULL,1794859725793382,1794859725795892);
CREATE TABLE schema_migrations (component TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (component, version)) STRICT, WITHOUT ROWID;
INSERT INTO "schema_migrations" VALUES('common',1,'base',1794859725121850);
INSERT INTO "schema_migrations" VALUES('common',2,'operator_actions',1794859725122815);
INSERT INTO "schema_migrations" VALUES('entitlements',1,'entitlements',1794859725147325);
INSERT INTO "schema_migrations" VALUES('entitlements',2,'audit_key_first',1794859725150789);
INSERT INTO "schema_migrations" VALUES('entitlements',3,'entitlement_sources',1794859725177387);
CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);
CREATE INDEX outbox_events_open ON outbox_events (created_at) WHERE status IN ('PENDING', 'IN_FLIGHT');
CREATE INDEX outbox_events_failed ON outbox_events (event_id) WHERE status = 'FAILED';
CREATE INDEX outbox_events_ended ON outbox_events (published_at) WHERE status = 'PUBLISHED';
CREATE INDEX entitlement_audit_entitlement
	ON entitlement_audit (user_id, stock_keeping_unit, version, step);
COMMIT;
PRAGMA user_version = 0;
PRAGMA application_id = 0;

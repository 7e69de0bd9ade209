BEGIN TRANSACTION;
CREATE TABLE coin (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	denomination INTEGER NOT NULL CHECK (denomination IN (1, 10, 100)),
	coin_count INTEGER NOT NULL CHECK (coin_count >= 0),
	pot_id INTEGER NOT NULL REFERENCES pot (id),
	UNIQUE (pot_id, denomination)
) STRICT;
INSERT INTO "coin" VALUES(1,100,3,1);
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
INSERT INTO "idempotency_keys" VALUES('POST /twirp/pyggpot.coin.Coin/RemoveCoins','first-draw',X'AB4C8421AAB7F97AED069703591FD6CA81C826EB66A853DAE185C5E481435714',200,'application/json','',X'7B22636F696E73223A5B7B226B696E64223A22474F4C44222C22636F756E74223A327D5D7D','',1794859729854731,'',1794946125854731);
CREATE TABLE operator_actions (
	id INTEGER PRIMARY KEY,
	at INTEGER NOT NULL,
	action TEXT NOT NULL,
	target TEXT NOT NULL,
	detail TEXT NOT NULL
) STRICT;
CREATE TABLE pot (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT CHECK (id <= 2147483647),
	pot_name TEXT NOT NULL UNIQUE,
	max_coins INTEGER NOT NULL,
	create_time INTEGER NOT NULL,
	lock TEXT NULL,
	lock_expire_time INTEGER NULL
) STRICT;
INSERT INTO "pot" VALUES(1,'savings',100,1794859725797429,NULL,NULL);
CREATE TABLE schema_migrations (component TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (component, version)) STRICT, WITHOUT ROWID;
INSERT INTO "schema_migrations" VALUES('common',1,'base',1794859725391309);
INSERT INTO "schema_migrations" VALUES('common',2,'operator_actions',1794859725415543);
INSERT INTO "schema_migrations" VALUES('pots',1,'pot_and_coin',1794859725420713);
INSERT INTO "schema_migrations" VALUES('pots',2,'lock_index',1794859725435529);
CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);
CREATE INDEX pot_lock ON pot (id, lock) WHERE lock IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('pot',1);
INSERT INTO "sqlite_sequence" VALUES('coin',1);
COMMIT;
PRAGMA user_version = 0;
PRAGMA application_id = 0;

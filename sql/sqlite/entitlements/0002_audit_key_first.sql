-- The key columns of entitlement_audit come first. Where they do not, PRAGMA integrity_check of SQLite 3.40 reports NULL
-- values in a table WITHOUT ROWID, although the data is fine.
DROP INDEX entitlement_audit_entitlement;
ALTER TABLE entitlement_audit RENAME TO entitlement_audit_before;

CREATE TABLE entitlement_audit (
	occurred_at INTEGER NOT NULL,
	event_id TEXT NOT NULL,
	user_id TEXT NOT NULL,
	stock_keeping_unit TEXT NOT NULL,
	action TEXT NOT NULL CHECK (action IN ('GRANTED', 'REVOKED')),
	version INTEGER NOT NULL,
	reason TEXT NOT NULL,
	purchase_id TEXT NOT NULL,
	PRIMARY KEY (occurred_at, event_id)
) STRICT, WITHOUT ROWID;

INSERT INTO entitlement_audit
	(occurred_at, event_id, user_id, stock_keeping_unit, action, version, reason, purchase_id)
SELECT occurred_at, event_id, user_id, stock_keeping_unit, action, version, reason, purchase_id
FROM entitlement_audit_before;

DROP TABLE entitlement_audit_before;
CREATE INDEX entitlement_audit_entitlement ON entitlement_audit (user_id, stock_keeping_unit, version);

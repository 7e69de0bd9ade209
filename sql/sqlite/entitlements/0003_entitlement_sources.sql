-- Why users have their entitlements: one row for each purchase or reason that granted one. An entitlement is
-- ACTIVE as long as one of its sources is. Sources that have ended stay, because a purchase grants only once.
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

-- `version` counts the changes of the status. `step` counts the changes since then that left the status alone:
-- further sources, and ends of sources while others remain. Together they number the lines of the audit.
ALTER TABLE entitlements ADD COLUMN step INTEGER NOT NULL DEFAULT 0;

DROP INDEX entitlement_audit_entitlement;
ALTER TABLE entitlement_audit RENAME TO entitlement_audit_before;

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

INSERT INTO entitlement_audit
	(occurred_at, user_id, stock_keeping_unit, version, step, action, reason, purchase_id, event_id)
SELECT occurred_at, user_id, stock_keeping_unit, version, 0, action, reason, purchase_id, event_id
FROM entitlement_audit_before;

DROP TABLE entitlement_audit_before;
CREATE INDEX entitlement_audit_entitlement
	ON entitlement_audit (user_id, stock_keeping_unit, version, step);

-- The sources of entitlements that exist, from their audit. A purchase that was granted several times has its
-- latest grant: with max(), SQLite takes the other columns from the same row. If the line of a grant has been
-- deleted, the revoke that followed it names the purchase.
WITH lines AS (
	SELECT *,
		lag(version) OVER history AS version_before,
		lead(occurred_at) OVER history AS next_at,
		CASE WHEN purchase_id <> '' THEN 'purchase' ELSE 'reason' END AS kind,
		coalesce(nullif(purchase_id, ''), reason) AS source_id
	FROM entitlement_audit
	WINDOW history AS (PARTITION BY user_id, stock_keeping_unit ORDER BY version)
), named AS (
	SELECT user_id, stock_keeping_unit, kind, source_id, max(version) AS version, action, reason,
		occurred_at, next_at
	FROM lines
	WHERE action = 'GRANTED' OR version_before IS NULL
	GROUP BY user_id, stock_keeping_unit, kind, source_id
), found AS (
	SELECT n.*,
		e.updated_at,
		e.status = 'ACTIVE' AND n.action = 'GRANTED' AND n.version = e.version AS is_active
	FROM named n
	JOIN entitlements e USING (user_id, stock_keeping_unit)
)
INSERT INTO entitlement_sources
	(user_id, stock_keeping_unit, kind, source_id, reason, status, granted_at, revoked_at)
SELECT user_id, stock_keeping_unit, kind, source_id,
	CASE WHEN action = 'GRANTED' THEN reason ELSE 'migrated' END,
	CASE WHEN is_active THEN 'ACTIVE' ELSE 'REVOKED' END,
	occurred_at,
	CASE
		WHEN is_active THEN NULL
		WHEN action = 'REVOKED' THEN occurred_at
		ELSE coalesce(next_at, updated_at)
	END
FROM found;

-- If the audit no longer says what granted an entitlement, the revoke of any purchase ends it.
INSERT INTO entitlement_sources
	(user_id, stock_keeping_unit, kind, source_id, reason, status, granted_at)
SELECT e.user_id, e.stock_keeping_unit, 'migrated', 'migrated', 'migrated', 'ACTIVE', e.updated_at
FROM entitlements e
WHERE e.status = 'ACTIVE' AND NOT EXISTS (
	SELECT 1
	FROM entitlement_sources s
	WHERE s.user_id = e.user_id AND s.stock_keeping_unit = e.stock_keeping_unit AND s.status = 'ACTIVE');

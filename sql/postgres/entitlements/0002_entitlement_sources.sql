-- Why users have their entitlements: one row for each purchase or reason that granted one. An entitlement is
-- ACTIVE as long as one of its sources is. Sources that have ended stay, because a purchase grants only once.
CREATE TABLE entitlement_sources (
	user_id text COLLATE "C" NOT NULL,
	stock_keeping_unit text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL CHECK (kind IN ('purchase', 'reason', 'migrated')),
	source_id text COLLATE "C" NOT NULL,
	reason text NOT NULL,
	status text NOT NULL CHECK (status IN ('ACTIVE', 'REVOKED')),
	granted_at timestamptz NOT NULL,
	revoked_at timestamptz,
	CHECK ((status = 'REVOKED') = (revoked_at IS NOT NULL)),
	PRIMARY KEY (user_id, stock_keeping_unit, kind, source_id)
) WITH (fillfactor = 90);

-- `version` counts the changes of the status. `step` counts the changes since then that left the status alone:
-- further sources, and ends of sources while others remain. Together they number the lines of the audit.
-- New rows have no default: a process of an older version, which would write changes without sources, fails.
ALTER TABLE entitlements ADD COLUMN step bigint NOT NULL DEFAULT 0;
ALTER TABLE entitlements ALTER COLUMN step DROP DEFAULT;
ALTER TABLE entitlement_audit
	ADD COLUMN step bigint NOT NULL DEFAULT 0,
	ALTER COLUMN event_id DROP NOT NULL,
	ALTER COLUMN purchase_id DROP NOT NULL;
ALTER TABLE entitlement_audit ALTER COLUMN step DROP DEFAULT;
DROP INDEX entitlement_audit_entitlement;
CREATE INDEX entitlement_audit_entitlement
	ON entitlement_audit (user_id, stock_keeping_unit, version, step);

-- This session's planner is set for small batches; here whole tables are read.
SET LOCAL enable_seqscan = on;
SET LOCAL enable_hashjoin = on;
SET LOCAL enable_mergejoin = on;

-- The sources of entitlements that exist, from their audit. A purchase that was granted several times has its
-- latest grant. If the line of a grant has been dropped, the revoke that followed it names the purchase.
WITH lines AS (
	SELECT *,
		lag(version) OVER history AS version_before,
		lead(occurred_at) OVER history AS next_at
	FROM entitlement_audit
	WINDOW history AS (PARTITION BY user_id, stock_keeping_unit ORDER BY version)
), named AS (
	SELECT DISTINCT ON (user_id, stock_keeping_unit, kind, source_id) *
	FROM (
		SELECT *,
			CASE WHEN purchase_id <> '' THEN 'purchase' ELSE 'reason' END AS kind,
			coalesce(nullif(purchase_id, ''), reason) AS source_id
		FROM lines
		WHERE action = 'GRANTED' OR version_before IS NULL) AS sources
	ORDER BY user_id, stock_keeping_unit, kind, source_id, version DESC
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

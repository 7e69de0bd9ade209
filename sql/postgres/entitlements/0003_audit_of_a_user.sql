-- The audit of one user, newest first. The partitions of later months get the index when they are created.
CREATE INDEX entitlement_audit_user
	ON entitlement_audit (user_id, occurred_at, stock_keeping_unit, version, step);

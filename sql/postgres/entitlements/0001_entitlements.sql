CREATE TABLE entitlements (
	user_id text COLLATE "C" NOT NULL,
	stock_keeping_unit text COLLATE "C" NOT NULL,
	status text NOT NULL CHECK (status IN ('ACTIVE', 'REVOKED')),
	version bigint NOT NULL,
	updated_at timestamptz NOT NULL,
	PRIMARY KEY (user_id, stock_keeping_unit)
) WITH (fillfactor = 70);

-- Events that wait to be published: the columns of the specification, and claim_epoch, which distinguishes
-- one claim of a row from the next. `stage` groups the statuses so that a claim does not change it. Every
-- index below uses stage and none uses status, so claiming a row or returning it touches no index (HOT;
-- fillfactor leaves the free space for that), and the planner uses these indexes only for statements that
-- name a stage.
CREATE TABLE outbox_events (
	event_id uuid PRIMARY KEY,
	event_type text NOT NULL,
	aggregate_key text NOT NULL,
	trace_id text NOT NULL,
	payload bytea NOT NULL,
	status text NOT NULL DEFAULT 'PENDING'
		CHECK (status IN ('PENDING', 'IN_FLIGHT', 'PUBLISHED', 'FAILED', 'DISCARDED')),
	attempt_count integer NOT NULL DEFAULT 0,
	next_retry_at timestamptz,
	locked_by text,
	locked_at timestamptz,
	lease_until timestamptz,
	claim_epoch bigint NOT NULL DEFAULT 0,
	last_error text,
	created_at timestamptz NOT NULL,
	published_at timestamptz,
	stage text NOT NULL GENERATED ALWAYS AS
		(CASE WHEN status IN ('PENDING', 'IN_FLIGHT') THEN 'OPEN' ELSE status END) STORED
) WITH (
	fillfactor = 50,
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX outbox_events_open ON outbox_events (created_at) WHERE stage = 'OPEN';
CREATE INDEX outbox_events_failed ON outbox_events (event_id) WHERE stage = 'FAILED';
CREATE INDEX outbox_events_ended ON outbox_events (published_at) WHERE stage = 'PUBLISHED';

-- The history of every change, with one partition per month (UTC). Rows without a partition of their own
-- stay in the default partition until that month's partition is created.
CREATE TABLE entitlement_audit (
	occurred_at timestamptz NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	stock_keeping_unit text COLLATE "C" NOT NULL,
	action text NOT NULL CHECK (action IN ('GRANTED', 'REVOKED')),
	version bigint NOT NULL,
	reason text NOT NULL,
	purchase_id text NOT NULL,
	event_id uuid NOT NULL
) PARTITION BY RANGE (occurred_at);

CREATE INDEX entitlement_audit_entitlement ON entitlement_audit (user_id, stock_keeping_unit, version);
CREATE TABLE entitlement_audit_default PARTITION OF entitlement_audit DEFAULT;

-- Creates the partition of a month and moves its rows there from the default partition. The lock makes
-- writers wait meanwhile: a writer that had already chosen the default partition would be refused by it.
CREATE FUNCTION quipu_make_audit_month(month timestamp) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	partition text := to_char(month, '"entitlement_audit_y"YYYY"m"MM');
	first timestamptz := month AT TIME ZONE 'UTC';
	behind timestamptz := (month + interval '1 month') AT TIME ZONE 'UTC';
BEGIN
	IF to_regclass(partition) IS NOT NULL THEN
		RETURN;
	END IF;
	LOCK TABLE ONLY entitlement_audit IN SHARE ROW EXCLUSIVE MODE;
	EXECUTE format('CREATE TABLE %I (LIKE entitlement_audit INCLUDING ALL)', partition);
	EXECUTE format('WITH moved AS (DELETE FROM entitlement_audit_default '
		'WHERE occurred_at >= %L AND occurred_at < %L RETURNING *) '
		'INSERT INTO %I SELECT * FROM moved', first, behind, partition);
	EXECUTE format('ALTER TABLE entitlement_audit ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
		partition, first, behind);
END
$$;

-- Only one process at a time maintains the audit; a second one has nothing to do.
CREATE FUNCTION quipu_tend_audit_lock() RETURNS boolean LANGUAGE sql VOLATILE AS $$
	SELECT pg_try_advisory_xact_lock(7310579612)
$$;

CREATE FUNCTION quipu_make_audit_months() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	this_month timestamp := date_trunc('month', quipu_now() AT TIME ZONE 'UTC');
BEGIN
	IF quipu_tend_audit_lock() THEN
		FOR ahead IN 0..3 LOOP
			PERFORM quipu_make_audit_month(this_month + ahead * interval '1 month');
		END LOOP;
	END IF;
END
$$;

-- Keeps this month and the given number of months before it.
CREATE FUNCTION quipu_drop_audit_months(keep integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	oldest timestamp := date_trunc('month', quipu_now() AT TIME ZONE 'UTC') - keep * interval '1 month';
	partition text;
BEGIN
	IF NOT quipu_tend_audit_lock() THEN
		RETURN;
	END IF;
	FOR partition IN
		SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
		WHERE inhparent = 'entitlement_audit'::regclass AND relname ~ '^entitlement_audit_y\d+m\d\d$'
			AND to_date(relname, '"entitlement_audit_y"YYYY"m"MM') < oldest
	LOOP
		EXECUTE format('DROP TABLE %I', partition);
	END LOOP;
	DELETE FROM entitlement_audit_default WHERE occurred_at < oldest AT TIME ZONE 'UTC';
END
$$;

SELECT quipu_make_audit_months();

-- The program's clock: clock_timestamp(), which unlike now() moves on while a transaction waits for
-- locks, plus an offset that only tests set.
CREATE FUNCTION quipu_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
	SELECT clock_timestamp()
		+ coalesce(nullif(current_setting('quipu.clock_offset', true), ''), '0')::interval
$$;

-- The answer to each Idempotency-Key, written in the transaction of the change itself. A row with an
-- owner is pending: an effect outside the store has begun, note says how to continue it, and only the
-- owner may finish it until lease_until.
CREATE TABLE idempotency_keys (
	scope text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	fingerprint bytea NOT NULL,
	status integer NOT NULL,
	content_type text NOT NULL,
	location text NOT NULL,
	body bytea NOT NULL,
	owner text NOT NULL,
	lease_until timestamptz NOT NULL,
	note text NOT NULL,
	expires_at timestamptz NOT NULL,
	PRIMARY KEY (scope, key)
);

CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);

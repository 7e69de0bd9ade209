-- shadow: decisions are made and counted, and nothing is refused. by_default: the first send made the row
-- from --gateway-default-limit; such rows are deleted when they have been idle for a while.
ALTER TABLE rate_limit_store
	ADD COLUMN shadow boolean NOT NULL DEFAULT false,
	ADD COLUMN by_default boolean NOT NULL DEFAULT false;

CREATE INDEX rate_limit_store_by_default ON rate_limit_store (last_refresh_time) WHERE by_default;

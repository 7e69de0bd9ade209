-- fillfactor leaves free space on each page, so that an update stays on its page and touches no index
-- (HOT).
CREATE TABLE count_values (
	item_id text COLLATE "C" PRIMARY KEY,
	current_value bigint NOT NULL DEFAULT 0,
	last_updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 60);

-- Times are microseconds since 1970.
CREATE TABLE count_values (
	item_id TEXT NOT NULL PRIMARY KEY,
	current_value INTEGER NOT NULL DEFAULT 0,
	last_updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

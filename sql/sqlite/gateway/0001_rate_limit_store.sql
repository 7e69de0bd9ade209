-- The single table of the specification, with configuration and count in one row. reserved_count includes
-- slots that were admitted but are not confirmed yet, so that no crash can admit them twice.
-- Times are microseconds since 1970.
CREATE TABLE rate_limit_store (
	user_id TEXT NOT NULL PRIMARY KEY,
	rate_limit INTEGER NOT NULL,
	time_window INTEGER NOT NULL,
	current_count INTEGER NOT NULL DEFAULT 0,
	last_refresh_time INTEGER NOT NULL,
	reserved_count INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE sent_messages (
	message_id TEXT NOT NULL PRIMARY KEY,
	sent_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sent_messages_sent_at ON sent_messages (sent_at);

-- The single table of the specification, with configuration and count in one row. reserved_count includes
-- slots that were admitted but are not confirmed yet, so that no crash can admit them twice.
CREATE TABLE rate_limit_store (
	user_id text COLLATE "C" PRIMARY KEY,
	rate_limit integer NOT NULL,
	time_window integer NOT NULL,
	current_count integer NOT NULL DEFAULT 0,
	last_refresh_time timestamptz NOT NULL,
	reserved_count integer NOT NULL DEFAULT 0
) WITH (fillfactor = 60);

CREATE TABLE sent_messages (
	message_id text COLLATE "C" PRIMARY KEY,
	sent_at timestamptz NOT NULL
);

CREATE INDEX sent_messages_sent_at ON sent_messages (sent_at);

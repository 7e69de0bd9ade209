-- One row per user and type. Times are microseconds since 1970.
CREATE TABLE counters (
	user_id TEXT NOT NULL,
	type TEXT NOT NULL,
	count INTEGER NOT NULL CHECK (count >= 0),
	last_updated INTEGER NOT NULL,
	version INTEGER NOT NULL,
	PRIMARY KEY (user_id, type)
) STRICT, WITHOUT ROWID;

-- The state of each message. A message counts while it is unread; unread rows are never deleted, read
-- rows are deleted after a while.
CREATE TABLE counter_messages (
	user_id TEXT NOT NULL,
	message_id TEXT NOT NULL,
	state TEXT NOT NULL CHECK (state IN ('unread', 'read')),
	event_at INTEGER NOT NULL,
	PRIMARY KEY (user_id, message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX counter_messages_unread ON counter_messages (user_id, message_id) WHERE state = 'unread';
CREATE INDEX counter_messages_read ON counter_messages (event_at) WHERE state = 'read';

-- Messages that the gateway has published and the sender has not taken yet. The row is written when the send is
-- counted and deleted when the sender writes its own, so the table holds what waits on the bus.
-- Times are microseconds since 1970.
CREATE TABLE queued_messages (
	id TEXT NOT NULL PRIMARY KEY,
	user_id TEXT NOT NULL,
	created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX queued_messages_user ON queued_messages (user_id);

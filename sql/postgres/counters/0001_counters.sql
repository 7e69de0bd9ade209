-- One row per user and type, updated by every event: fillfactor leaves free space on each page, so that
-- an update stays on its page and touches no index (HOT). Citus can distribute both tables by user_id.
CREATE TABLE counters (
	user_id text COLLATE "C" NOT NULL,
	type text COLLATE "C" NOT NULL,
	count bigint NOT NULL CHECK (count >= 0),
	last_updated timestamptz NOT NULL,
	version bigint NOT NULL,
	PRIMARY KEY (user_id, type)
) WITH (
	fillfactor = 50,
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0
);

-- The state of each message. A message counts while it is unread; unread rows are never deleted, read
-- rows are deleted after a while.
CREATE TABLE counter_messages (
	user_id text COLLATE "C" NOT NULL,
	message_id text COLLATE "C" NOT NULL,
	state text NOT NULL CHECK (state IN ('unread', 'read')),
	event_at timestamptz NOT NULL,
	PRIMARY KEY (user_id, message_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX counter_messages_unread ON counter_messages (user_id, message_id) WHERE state = 'unread';
CREATE INDEX counter_messages_read ON counter_messages (event_at) WHERE state = 'read';

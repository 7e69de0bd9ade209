-- Messages that the gateway has published and the sender has not taken yet. The row is written when the send is
-- counted and deleted when the sender writes its own, so the table holds what waits on the bus.
CREATE TABLE queued_messages (
	id uuid PRIMARY KEY,
	user_id text COLLATE "C" NOT NULL,
	created_at timestamptz NOT NULL
) WITH (
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX queued_messages_user ON queued_messages (user_id);

-- Messages, stored by receiver: every unique constraint contains receiver_id, and there are no foreign
-- keys, so that Citus can distribute the table by receiver_id. Ids sort by time. messages_dialog finds one
-- direction of a dialog; swap the two users to find the other one. messages_unread is for quipu verify,
-- which would otherwise scan every message ever read.
CREATE TABLE messages (
	receiver_id text COLLATE "C" NOT NULL,
	id text COLLATE "C" NOT NULL,
	sender_id text COLLATE "C" NOT NULL,
	text text NOT NULL,
	created_at timestamptz NOT NULL,
	is_read boolean NOT NULL DEFAULT false,
	PRIMARY KEY (receiver_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE INDEX messages_dialog ON messages (receiver_id, sender_id, id);
CREATE INDEX messages_unread ON messages (receiver_id, id) WHERE NOT is_read;

-- Events that wait to be published: the columns of the specification, and claim_epoch, which distinguishes
-- one claim of a row from the next. `stage` groups the statuses so that a claim does not change it. Every
-- index below uses stage and none uses status, so claiming a row or returning it touches no index (HOT;
-- fillfactor leaves the free space for that), and the planner uses these indexes only for statements that
-- name a stage.
CREATE TABLE dialog_outbox_events (
	event_id uuid PRIMARY KEY,
	event_type text NOT NULL,
	aggregate_key text NOT NULL,
	trace_id text NOT NULL,
	payload bytea NOT NULL,
	status text NOT NULL DEFAULT 'PENDING'
		CHECK (status IN ('PENDING', 'IN_FLIGHT', 'PUBLISHED', 'FAILED', 'DISCARDED')),
	attempt_count integer NOT NULL DEFAULT 0,
	next_retry_at timestamptz,
	locked_by text,
	locked_at timestamptz,
	lease_until timestamptz,
	claim_epoch bigint NOT NULL DEFAULT 0,
	last_error text,
	created_at timestamptz NOT NULL,
	published_at timestamptz,
	stage text NOT NULL GENERATED ALWAYS AS
		(CASE WHEN status IN ('PENDING', 'IN_FLIGHT') THEN 'OPEN' ELSE status END) STORED
) WITH (
	fillfactor = 50,
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX dialog_outbox_events_open ON dialog_outbox_events (created_at) WHERE stage = 'OPEN';
CREATE INDEX dialog_outbox_events_failed ON dialog_outbox_events (event_id) WHERE stage = 'FAILED';
CREATE INDEX dialog_outbox_events_ended ON dialog_outbox_events (published_at) WHERE stage = 'PUBLISHED';

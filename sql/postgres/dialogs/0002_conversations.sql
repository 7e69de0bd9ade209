-- Who talks with whom: two rows for each pair of users, one under either of them, and one row for a user's
-- notes to himself. The last message of a conversation is not kept here: messages_dialog finds the newest of
-- each direction, so there is no copy that could fall behind. What is kept is roughly when it was sent, so that
-- the conversations of a user can be walked newest first: last_span is the first 7 characters of its id, which
-- tell its time to about 17 minutes. A message therefore writes here only if it begins a conversation or a span.
-- Within a span, a list sorts by the last messages themselves.
-- Citus can distribute the table by user_id.
CREATE TABLE conversations (
	user_id text COLLATE "C" NOT NULL,
	other_id text COLLATE "C" NOT NULL,
	last_span text COLLATE "C" NOT NULL,
	PRIMARY KEY (user_id, other_id)
);

-- New rows have no default: a process of an older version, which would write messages without their
-- conversations, fails. Changing the table also waits for such a process's open transactions.
ALTER TABLE messages ADD COLUMN in_conversation boolean NOT NULL DEFAULT true;
ALTER TABLE messages ALTER COLUMN in_conversation DROP DEFAULT;

-- Replaces messages_unread: it also counts and finds the unread messages of one sender.
CREATE INDEX messages_unread_from ON messages (receiver_id, sender_id, id) WHERE NOT is_read;
DROP INDEX messages_unread;

-- This session's planner is set for small batches; here whole tables are read.
SET LOCAL enable_seqscan = on;
SET LOCAL enable_hashjoin = on;
SET LOCAL enable_mergejoin = on;

INSERT INTO conversations (user_id, other_id, last_span)
WITH directions AS MATERIALIZED (
	SELECT receiver_id, sender_id, max(id) AS last_id
	FROM messages
	GROUP BY receiver_id, sender_id
), ends AS (
	SELECT receiver_id AS user_id, sender_id AS other_id, last_id
	FROM directions
	UNION ALL
	SELECT sender_id, receiver_id, last_id
	FROM directions
)
SELECT user_id, other_id, max(left(last_id, 7))
FROM ends
GROUP BY user_id, other_id;

CREATE INDEX conversations_newest ON conversations (user_id, last_span);
ANALYZE conversations;

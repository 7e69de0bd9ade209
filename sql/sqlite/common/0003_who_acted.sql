-- Who acted: the id of the API key, empty if the server checks none. Actions are listed by time.
ALTER TABLE operator_actions ADD COLUMN who TEXT NOT NULL DEFAULT '';
CREATE INDEX operator_actions_by_time ON operator_actions (at, id);

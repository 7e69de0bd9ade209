-- What operators did about events and notifications that were given up, written in the transaction of
-- the action. Times are microseconds since 1970.
CREATE TABLE operator_actions (
	id INTEGER PRIMARY KEY,
	at INTEGER NOT NULL,
	action TEXT NOT NULL,
	target TEXT NOT NULL,
	detail TEXT NOT NULL
) STRICT;

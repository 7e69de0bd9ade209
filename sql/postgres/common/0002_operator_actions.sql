-- What operators did about events and notifications that were given up, written in the transaction of
-- the action.
CREATE TABLE operator_actions (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at timestamptz NOT NULL,
	action text NOT NULL,
	target text NOT NULL,
	detail text NOT NULL
);

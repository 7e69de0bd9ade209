-- The seed's table. lock (a UUID) names who may change what is in the pot, until lock_expire_time; a batch
-- of this program takes it, changes and releases it in one transaction, so that only locks of others are
-- ever seen. Times are microseconds since 1970.
CREATE TABLE pot (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT CHECK (id <= 2147483647),
	pot_name TEXT NOT NULL UNIQUE,
	max_coins INTEGER NOT NULL,
	create_time INTEGER NOT NULL,
	lock TEXT NULL,
	lock_expire_time INTEGER NULL
) STRICT;

CREATE INDEX pot_lock ON pot (id, lock);

-- One row for each kind that was ever in the pot.
CREATE TABLE coin (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	denomination INTEGER NOT NULL CHECK (denomination IN (1, 10, 100)),
	coin_count INTEGER NOT NULL CHECK (coin_count >= 0),
	pot_id INTEGER NOT NULL REFERENCES pot (id),
	UNIQUE (pot_id, denomination)
) STRICT;

-- The table of the specification. lock (a UUID) names the owner who may change the contents of the pot until
-- lock_expire_time. A batch of this program takes the lock, changes the pot and releases the lock in one
-- transaction, so only locks of other programs are ever visible. Times are microseconds since 1970.
CREATE TABLE pot (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT CHECK (id <= 2147483647),
	pot_name TEXT NOT NULL UNIQUE,
	max_coins INTEGER NOT NULL,
	create_time INTEGER NOT NULL,
	lock TEXT NULL,
	lock_expire_time INTEGER NULL
) STRICT;

CREATE INDEX pot_lock ON pot (id, lock);

-- One row per kind that was ever in the pot.
CREATE TABLE coin (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	denomination INTEGER NOT NULL CHECK (denomination IN (1, 10, 100)),
	coin_count INTEGER NOT NULL CHECK (coin_count >= 0),
	pot_id INTEGER NOT NULL REFERENCES pot (id),
	UNIQUE (pot_id, denomination)
) STRICT;

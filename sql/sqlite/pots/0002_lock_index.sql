-- Queries find rows by id and never need the specification's index, which only has to be maintained. An
-- index of the held locks alone costs half as much.
DROP INDEX pot_lock;
CREATE INDEX pot_lock ON pot (id, lock) WHERE lock IS NOT NULL;

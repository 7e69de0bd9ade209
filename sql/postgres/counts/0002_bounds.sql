-- NULL: that end has no bound but int64. No CHECK: the statements that write a count compare it with its
-- bounds anyway, in order to refuse a single request and not the whole batch.
ALTER TABLE count_values
	ADD COLUMN min_value bigint,
	ADD COLUMN max_value bigint;

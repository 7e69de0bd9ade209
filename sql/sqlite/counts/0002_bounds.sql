-- NULL: that end has no bound but int64.
ALTER TABLE count_values ADD COLUMN min_value INTEGER;
ALTER TABLE count_values ADD COLUMN max_value INTEGER;

"""The parts of tests/run.py: the plan of jobs, the trees they need, running them, and what people see of it."""

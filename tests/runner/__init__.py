"""What tests/run.py is made of: the plan of jobs, the trees they need, running them, and what people see of it."""

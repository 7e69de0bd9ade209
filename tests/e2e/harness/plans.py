"""What PostgreSQL's planner does with the program's statements."""

import contextlib
import re

PLAN = re.compile(r"LOG:  duration: [\d.]+ ms  plan:\n((?:\t.*\n?)+)")


@contextlib.contextmanager
def explained(database, *tables):
    """While the block runs, PostgreSQL logs the plan of every statement of new sessions. Yields a list, which is then
    filled with the plans that use one of `tables`."""
    for name, value in [
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_nested_statements", "on"),
    ]:
        database.query(f"ALTER DATABASE {database.name} SET {name} = '{value}'")
    start = database.server.log_size()
    plans = []
    yield plans
    text = database.log_since(start)
    plans += [plan for plan in PLAN.findall(text) if any(re.search(rf"\b{table}\b", plan) for table in tables)]


def scans_of(plans, table, kind):
    """Returns the plans that read `table` with this kind of scan."""
    return [plan for plan in plans if re.search(rf"{kind} (using \w+ )?on (public\.)?{table}\b", plan)]

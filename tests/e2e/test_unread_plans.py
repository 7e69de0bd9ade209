"""The planner reaches messages and counters by their indexes, whatever the size of the tables, so that all processes
lock rows in one order and a page of a dialog costs the same in a long one. The statements are those that the contract
suites run."""

import os
import subprocess

import pytest

from engines import process
from harness.plans import explained, scans_of
from harness.quipu import run
from harness.waiting import HANG_S, wait_until

SUITES = ["message_repository_contract", "conversation_contract", "counter_repository_contract"]
FILL = {
    "messages": "INSERT INTO messages SELECT 'user-' || n %% 100, 'message-' || n, 'user-' || n %% 7, 'hello', now(), "
    "n %% 10 > 0, true FROM generate_series(1, %s) n",
    "conversations": "INSERT INTO conversations SELECT 'user-' || n %% 10, 'user-' || n, 'message' FROM generate_series(1, %s) n",
    "counters": "INSERT INTO counters SELECT 'user-' || n, 'UnreadMessages', n, now(), 1 FROM generate_series(1, %s) n",
    "counter_messages": "INSERT INTO counter_messages SELECT 'user-' || n %% 100, 'message-' || n, "
    "CASE WHEN n %% 10 > 0 THEN 'read' ELSE 'unread' END, now() FROM generate_series(1, %s) n",
}


def run_suites(binary, database):
    """All at once: most of the time they wait for PostgreSQL."""
    running = [
        process.start(
            [binary.parent / "tests" / "contract" / suite], env={**os.environ, "QUIPU_CONTRACT_STORE": database.url},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for suite in SUITES
    ]
    told = [suite.communicate(timeout=HANG_S)[0] for suite in running]
    assert [suite.returncode for suite in running] == [0] * len(SUITES), told


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never-analyzed"])
@pytest.mark.parametrize("rows", [10, 10_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_batches_use_the_indexes_whatever_the_size_of_the_tables(binary, database, rows, analyzed):
    done = run(binary, "migrate", "--roles", "dialogs,counters", "--store", database.url)
    assert done.returncode == 0, done.stderr
    for table, fill in FILL.items():
        database.query(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")  # it might analyze a half-filled table
        database.query(fill, (rows,))
        if analyzed:
            database.query(f"ANALYZE {table}")
    with explained(database, *FILL) as logged:
        run_suites(binary, database)

    plans = [plan for plan in logged if "$1" in plan]  # a suite's own statements have no parameters
    for table in FILL:
        change = "Insert" if table == "conversations" else "Update"
        assert any(f"{change} on {table}" in plan for plan in plans), f"the plan of no {change} was logged"
        assert scans_of(plans, table, r"Index (Only )?Scan( Backward)?")
        assert scans_of(plans, table, r"(Seq Scan|Bitmap Heap Scan)") == []
        # every row of a batch is looked up by its whole key: a filter would mean that one is looked for among all
        assert [plan for plan in plans if "Join Filter" in plan] == []
    lists = [plan for plan in plans if "CTE near" in plan]
    assert lists and all("using conversations_newest on conversations" in plan for plan in lists)
    assert rows < 10_000 or all("using messages_unread_from on messages u" in plan for plan in lists)


def expected_rows(database, table):
    """How many rows the planner believes the table to have."""
    plan = database.query(f"EXPLAIN (FORMAT JSON) SELECT * FROM {table}")[0][0]
    return plan[0]["Plan"]["Plan Rows"]


def test_a_table_that_was_analyzed_while_it_was_empty_is_analyzed_again_when_it_has_rows(serve, binary, database, postgres_store):
    done = run(binary, "migrate", "--roles", "dialogs,counters", "--store", database.url)
    assert done.returncode == 0, done.stderr
    for table, fill in FILL.items():
        database.query(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")  # which would analyze it a minute later
        database.query(fill, (10_000,))
        database.query(f"DELETE FROM {table}")
        database.query(f"ANALYZE {table}")
        database.query(fill, (10_000,))
        assert expected_rows(database, table) < 100

    server = serve(postgres_store, "--roles", "dialogs,counters")
    for table in FILL:
        wait_until(lambda table=table: expected_rows(database, table) > 1000, f"{table} is analyzed")
    wait_until(lambda: "analyzing tables that have grown: " in server.log_text(), "the log says so")

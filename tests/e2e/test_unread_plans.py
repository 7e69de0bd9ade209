"""The planner reaches messages and counters by their indexes, whatever the size of the tables, so that all processes
lock rows in one order and a page of a dialog costs the same in a long one. The statements are those that the contract
suites run."""

import os
import subprocess

import pytest

from harness.plans import explained, scans_of

SUITES = {
    "message_repository_contract": ["messages"],
    "counter_repository_contract": ["counters", "counter_messages"],
}
FILL = {
    "messages": "INSERT INTO messages SELECT 'user-' || n %% 100, 'message-' || n, 'user-' || n %% 7, 'hello', now(), "
    "n %% 10 > 0 FROM generate_series(1, %s) n",
    "counters": "INSERT INTO counters SELECT 'user-' || n, 'UnreadMessages', n, now(), 1 FROM generate_series(1, %s) n",
    "counter_messages": "INSERT INTO counter_messages SELECT 'user-' || n %% 100, 'message-' || n, "
    "CASE WHEN n %% 10 > 0 THEN 'read' ELSE 'unread' END, now() FROM generate_series(1, %s) n",
}


def run_suite(binary, suite, database):
    program = binary.parent / "tests" / "contract" / suite
    subprocess.run(
        [program], env={**os.environ, "QUIPU_CONTRACT_STORE": database.url}, check=True, capture_output=True, timeout=120
    )


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never-analyzed"])
@pytest.mark.parametrize("rows", [10, 10_000, 200_000])
@pytest.mark.parametrize("suite", SUITES)
def test_batches_use_the_indexes_whatever_the_size_of_the_tables(binary, database, suite, rows, analyzed):
    run_suite(binary, suite, database)
    for table in SUITES[suite]:
        database.query(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")  # it might analyze a half-filled table
        database.query(f"TRUNCATE {table}")
        database.query(FILL[table], (rows,))
        if analyzed:
            database.query(f"ANALYZE {table}")
    with explained(database, *SUITES[suite]) as plans:
        run_suite(binary, suite, database)

    for table in SUITES[suite]:
        assert any(f"Update on {table}" in plan for plan in plans), "the plan of no UPDATE was logged"
        assert scans_of(plans, table, r"Index (Only )?Scan( Backward)?")
        assert scans_of(plans, table, r"(Seq Scan|Bitmap Heap Scan)") == []
        # every row of a batch is looked up by its whole key: a filter would mean that one is looked for among all
        assert [plan for plan in plans if "Join Filter" in plan] == []

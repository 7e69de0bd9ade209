"""How much slower increases become when the table grows from ten thousand items to ten million, in the ways of cases.py.

The tables are made in bulk, behind the program's back. Quipu's slowdown is judged by pgbench's own on the same tables of
the same server, in the same run.
"""

import os
import sqlite3
import time
from contextlib import ExitStack

import loads
from cases import ITEMS, SEED_UPDATE, PostgresCounts, QuipuThroughput, Row, SqliteCounts, make_peer_table
from servers import Postgres, Quipu

MANY = 10_000_000
CLIENTS = 32


class GrownPostgresCounts(PostgresCounts):
    def values(self):
        """The sum only: ten million values are too many to fetch for a check."""
        return {"all": int(self.postgres.run(self.database, "SELECT sum(current_value) FROM count_values")[0][0])}


class GrownSqliteCounts(SqliteCounts):
    """A Quipu on SQLite whose items are put into its file while it is stopped."""

    def __init__(self, bench, items):
        super().__init__(bench)
        self.items = items

    def __enter__(self):
        with self.quipu:
            pass  # makes the file
        with sqlite3.connect(self.path()) as file:
            file.execute(
                "INSERT INTO count_values (item_id, last_updated_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                "FROM n WHERE i < ?) SELECT 'item-' || i AS id, ? FROM n ORDER BY id", (self.items, int(time.time() * 1e6)))
        file.close()
        Quipu.__enter__(self.quipu)
        return self

    def path(self):
        return os.path.join(self.quipu.folder, "data", "counts.db")

    def values(self):
        file = sqlite3.connect(f"file:{self.path()}?mode=ro", uri=True)
        try:
            return {"all": file.execute("SELECT sum(current_value) FROM count_values").fetchone()[0]}
        finally:
            file.close()


def pgbench_rate(bench, postgres, items):
    database = f"peer_{items}"
    script = os.path.join(bench.root, f"{database}.pgbench")
    with open(script, "w") as f:
        f.write(f"\\set id random(1, {items})\n" + SEED_UPDATE)

    def measure():
        postgres.run(database, "VACUUM count_values", "CHECKPOINT")
        loads.settle()
        result = loads.pgbench("growth", postgres, database, script, CLIENTS, bench.seconds)
        bench.say(f"growth: pgbench, {items:,} items {result['per_s']:,.0f}/s")
        return result["per_s"]

    return measure


def best_of(rounds, sides):
    """Measures the sides by turns, and returns the best figure of each."""
    best = {side: 0.0 for side in sides}
    for _ in range(rounds):
        for side, measure in sides.items():
            best[side] = max(best[side], measure())
    return best


def fill_row(row, best, own, peer, problems):
    few, many = (best[own, items] for items in (ITEMS, MANY))
    peer_few, peer_many = (best[peer, items] for items in (ITEMS, MANY))
    row.quipu, row.peer = f"{many / few:.2f}x ({many:,.0f}/s)", f"{peer_many / peer_few:.2f}x ({peer_many:,.0f}/s)"
    row.ratio = f"{many / few / (peer_many / peer_few):.2f}x"
    row.values = {"few_per_s": few, "many_per_s": many, "peer_few_per_s": peer_few, "peer_many_per_s": peer_many}
    row.ok = many / few >= peer_many / peer_few and not problems
    row.note = "; ".join(problems)


def growth(bench):
    """Both stores in one case, because the table of ten million items for pgbench takes long to make."""
    what = f"increases over {MANY:,} items / over {ITEMS:,}, {{}} / pgbench's own slowdown"
    rows = {store: Row(f"growth-{store.lower()}", what.format(store), at_least="1x") for store in ("PostgreSQL", "SQLite")}
    sides, problems = {}, {store: [] for store in rows}
    with ExitStack() as stack:
        postgres = bench.shared(Postgres)
        for items in (ITEMS, MANY):
            counts = {"PostgreSQL": stack.enter_context(GrownPostgresCounts(bench, items=items)),
                      "SQLite": stack.enter_context(GrownSqliteCounts(bench, items))}
            make_peer_table(postgres, counts["PostgreSQL"].storage(), items, f"peer_{items}")
            sides["pgbench", items] = pgbench_rate(bench, postgres, items)
            for store, each in counts.items():
                quipu = QuipuThroughput(bench, each, f"growth {store}, {items:,} items", items)
                quipu.problems = problems[store]
                sides[store, items] = quipu.measure
        best = best_of(bench.rounds, sides)
    for store, row in rows.items():
        fill_row(row, best, store, "pgbench", problems[store])
    return list(rows.values())


CASES = {"growth": growth}

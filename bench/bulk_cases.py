"""What is measured of POST /api/v1/counts/batch, in the ways of cases.py: batches of 100 changes, counted as changes."""

import os
from contextlib import ExitStack

import loads
from cases import (
    ITEMS, PostgresCounts, QuipuThroughput, Row, SqliteCounts, alternate, make_peer_table, open_counts, throughput_row,
)
from servers import Missing, Postgres

CHANGES = 100
CONNECTIONS = 32


class BulkThroughput(QuipuThroughput):
    """Rounds of batches against one Quipu."""

    in_flight_max = CONNECTIONS
    changes = CHANGES

    def ask(self):
        return loads.wrk_bulk(self.label, self.counts.quipu.port, self.items, CHANGES, self.bench.seconds, CONNECTIONS)


# The items are drawn by pgbench and locked in one order, so that two clients never wait for each other.
UNNEST = (
    "".join(f"\\set id{n} random(1, {ITEMS})\n" for n in range(1, CHANGES + 1))
    + "UPDATE count_values c SET current_value = current_value + 1, last_updated_at = now() FROM (SELECT DISTINCT id::text "
    "COLLATE \"C\" AS id FROM unnest(ARRAY[" + ", ".join(f":id{n}" for n in range(1, CHANGES + 1))
    + "]) AS id ORDER BY 1) changes WHERE c.item_id = changes.id RETURNING c.item_id, c.current_value;\n"
)


def unnest_variants(bench, postgres, storage):
    make_peer_table(postgres, storage)
    script = os.path.join(bench.root, "unnest.pgbench")
    with open(script, "w") as f:
        f.write(UNNEST)

    def measure(clients):
        postgres.run("peer", "VACUUM count_values", "CHECKPOINT")
        loads.settle()
        result = loads.pgbench("bulk-postgres", postgres, "peer", script, clients, bench.seconds, ("--max-tries", "100"))
        bench.say(f"bulk-postgres: pgbench, {clients} clients {result['per_s'] * CHANGES:,.0f} changes/s")
        return result["per_s"] * CHANGES

    return {f"{clients} clients": lambda clients=clients: measure(clients) for clients in (2, 4, 8)}


def bulk_postgres(bench):
    row = Row("bulk-postgres", f"batches of {CHANGES} changes over {ITEMS:,} items, PostgreSQL / pgbench, one UPDATE … unnest")
    with ExitStack() as stack:
        counts = open_counts(stack, PostgresCounts, bench, row)
        quipu = BulkThroughput(bench, counts, row.name, ITEMS) if counts else None
        peers = unnest_variants(bench, bench.shared(Postgres), counts.storage() if counts else "")
        best = alternate(bench.rounds, peers, quipu and quipu.measure)
        return [throughput_row(row, *best, 0.7, quipu.problems if quipu else [])]


def bare_loop(bench):
    """Updates per second of a loop in C that does nothing else."""
    program = os.path.join(os.path.dirname(bench.openloop_program), "sqlite_loop")
    if not os.access(program, os.X_OK):
        raise Missing(f"{program} is not built")
    path = os.path.join(bench.root, "loop.db")

    def measure():
        loads.settle()
        output = loads.run_batch_job([program, path, str(ITEMS), str(CHANGES), str(bench.seconds)], bench.seconds + 30)
        result = loads.record(tool="sqlite_loop", label="bulk-sqlite", **loads.last_json(output))
        bench.say(f"bulk-sqlite: a bare loop {result['per_s']:,.0f} changes/s")
        return result["per_s"]

    return {"a loop in C": measure}


def bulk_sqlite(bench):
    row = Row("bulk-sqlite", f"batches of {CHANGES} changes over {ITEMS:,} items, SQLite / a loop of prepared updates in C")
    with ExitStack() as stack:
        counts = open_counts(stack, SqliteCounts, bench, row)
        quipu = BulkThroughput(bench, counts, row.name, ITEMS) if counts else None
        best = alternate(bench.rounds, bare_loop(bench), quipu and quipu.measure)
        return [throughput_row(row, *best, 0.8, quipu.problems if quipu else [])]


CASES = {
    "bulk-postgres": bulk_postgres,
    "bulk-sqlite": bulk_sqlite,
}

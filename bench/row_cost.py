#!/usr/bin/python3
"""What a changed row costs PostgreSQL, and what each of its settings and of ours saves.

    bench/row_cost.py BUILD                            BUILD: a folder with row_cost
    bench/row_cost.py BUILD --rounds 5 --seconds 4
    bench/row_cost.py BUILD --only items               only the first variant and those with this word in their names

Each variant says in what it differs from the first one. The variants take turns, so that a busy machine slows all of them
alike; the table has the median of the rounds. WAL and HOT are read from PostgreSQL's own statistics.
"""

import argparse
import os
import statistics
import subprocess
import tempfile

import psycopg2

from servers import Failed, Postgres

TABLE = """CREATE TABLE row_cost (item_id text COLLATE "C" PRIMARY KEY, current_value bigint NOT NULL,
    last_updated_at timestamptz NOT NULL) WITH (fillfactor = {fillfactor})"""
FILL = "INSERT INTO row_cost SELECT 'item-' || lpad(n::text, 8, '0'), 0, now() FROM generate_series(0, {items} - 1) n"
# Quipu's sessions look rows up one by one, whatever the planner believes.
PLANS = ["enable_hashjoin=off", "enable_mergejoin=off", "enable_seqscan=off", "plan_cache_mode=force_generic_plan"]
FIRST = {"rows": 64, "items": 10_000, "format": "binary", "lanes": 2, "fillfactor": 60, "settings": {}, "synchronous_commit": "on"}
VARIANTS = {
    "64 rows, binary, 2 connections, fillfactor 60": {},
    "arrays as text": {"format": "text"},
    "1 row": {"rows": 1},
    "16 rows": {"rows": 16},
    "256 rows": {"rows": 256},
    "1 connection": {"lanes": 1},
    "4 connections": {"lanes": 4},
    "fillfactor 30": {"fillfactor": 30},
    "fillfactor 100": {"fillfactor": 100},
    "10,000,000 items": {"items": 10_000_000},
    "256 rows, 10,000,000 items": {"rows": 256, "items": 10_000_000},
    "commit_delay 100 µs": {"settings": {"commit_delay": "100", "commit_siblings": "1"}},
    "1 row, 32 connections": {"rows": 1, "lanes": 32},
    "1 row, 32 connections, commit_delay 100 µs": {
        "rows": 1, "lanes": 32, "settings": {"commit_delay": "100", "commit_siblings": "1"}},
    "wal_compression lz4": {"settings": {"wal_compression": "lz4"}},
    "full_page_writes off (unsafe)": {"settings": {"full_page_writes": "off"}},
    "synchronous_commit off (unsafe)": {"synchronous_commit": "off"},
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--tmp", help="where PostgreSQL keeps its data (a real disk)")
    return parser.parse_args()


def chosen_variants(word):
    first = next(iter(VARIANTS))
    return {name: variant for name, variant in VARIANTS.items() if name == first or word in name}


class Counters:
    """What PostgreSQL has counted so far: WAL, commits that waited for the disk, updates, and updates that were HOT."""

    ASKED = """SELECT w.wal_bytes, w.wal_sync, t.n_tup_upd, t.n_tup_hot_upd
        FROM pg_stat_wal w, pg_stat_user_tables t WHERE t.relname = 'row_cost'"""

    def __init__(self, port):
        with psycopg2.connect(host="127.0.0.1", port=port, user="postgres") as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute(self.ASKED)
            self.wal, self.syncs, self.updates, self.hot = map(int, cursor.fetchone())


def apply_settings(postgres, settings):
    postgres.run("postgres", "ALTER SYSTEM RESET ALL",
                 *(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()), "SELECT pg_reload_conf()")


def renew_table(postgres, variant):
    postgres.run("postgres", "DROP TABLE IF EXISTS row_cost", TABLE.format(fillfactor=variant["fillfactor"]),
                 FILL.format(items=variant["items"]), "VACUUM ANALYZE row_cost", "CHECKPOINT")


def run_clients(program, postgres, variant, seconds):
    """Returns the rows and transactions of all connections together."""
    chosen = " ".join(f"-c {word}" for word in [*PLANS, f"synchronous_commit={variant['synchronous_commit']}"])
    where = f"host=127.0.0.1 port={postgres.port} user=postgres options='{chosen}'"
    command = [program, where, str(seconds), str(variant["rows"]), str(variant["items"]), variant["format"]]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(variant["lanes"])]
    said = [client.communicate()[0].split() for client in clients]
    if any(client.returncode for client in clients):
        raise Failed(f"{' '.join(command)} failed")
    return [sum(int(words[i]) for words in said) for i in range(2)]


def measure(options, postgres, variant):
    variant = {**FIRST, **variant}
    apply_settings(postgres, variant["settings"])
    renew_table(postgres, variant)
    before = Counters(postgres.port)
    rows, transactions = run_clients(os.path.join(options.build, "row_cost"), postgres, variant, options.seconds)
    after = Counters(postgres.port)
    return {
        "rows": rows / options.seconds,
        "wal": (after.wal - before.wal) / rows,
        "hot": (after.hot - before.hot) / (after.updates - before.updates),
        "syncs": (after.syncs - before.syncs) / transactions,
    }


def show(results):
    def median(name, what):
        return statistics.median(result[what] for result in results[name])

    first = median(next(iter(results)), "rows")
    print("| variant | rows/s | | WAL per row | HOT | syncs per transaction |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in results:
        rate = median(name, "rows")
        print(f"| {name} | {rate:,.0f} | {rate / first:.2f} | {median(name, 'wal'):.0f} bytes | "
              f"{median(name, 'hot'):.0%} | {median(name, 'syncs'):.2f} |")


def main():
    options = arguments()
    variants = chosen_variants(options.only)
    results = {name: [] for name in variants}
    with tempfile.TemporaryDirectory(dir=options.tmp) as root:
        os.chmod(root, 0o755)  # PostgreSQL does not run as root
        with Postgres(root) as postgres:
            for _ in range(options.rounds):
                for name, variant in variants.items():
                    results[name].append(measure(options, postgres, variant))
    show(results)


main()

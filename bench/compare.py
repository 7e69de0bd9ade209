#!/usr/bin/python3
"""Compares two builds of Quipu in alternating runs, so that a busy machine slows both alike.

    bench/compare.py BEFORE AFTER            paths of the two programs
    bench/compare.py BEFORE AFTER --rounds 8 --seconds 5 --loads send

Measures increases of counts, without a key on one item and spread over 10,000, and with keys and bodies spread over
10,000, and messages to 10,000 users (`send`), on PostgreSQL and SQLite. Prints the median of the pairwise ratios
AFTER / BEFORE and their range. Exit status: 0 if every median is at least --at-least.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack

import cases
import loads
import unread_cases
from servers import Quipu, RabbitMQ

LOADS = {"one": 1, "spread": cases.ITEMS, "keyed": cases.ITEMS, "send": cases.ITEMS}


class PostgresDialogs(unread_cases.Unread):
    def __init__(self, bench):
        super().__init__(bench, "dialogs")


class SqliteDialogs:
    """A Quipu on its default store, and a virtual host of RabbitMQ."""

    def __init__(self, bench):
        self.rabbitmq, self.host = bench.shared(RabbitMQ), bench.new_database()
        options = ("--roles", "dialogs", "--unread-bus", self.rabbitmq.new_host(self.host))
        self.quipu = Quipu(bench.root, bench.quipu_program, None, options)

    def __enter__(self):
        self.quipu.__enter__()
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def tidy(self):
        """Events that wait to be published would take processors from the next run."""
        while self.quipu.metric("quipu_outbox_pending") > 0:
            time.sleep(0.1)
        self.rabbitmq.purge(self.host, *unread_cases.QUEUES)
        loads.settle()


COUNTS = {"postgres": cases.PostgresCounts, "sqlite": cases.SqliteCounts}
SENDS = {"postgres": PostgresDialogs, "sqlite": SqliteDialogs}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--loads", type=lambda text: text.split(","), default=list(LOADS), help=", ".join(LOADS))
    parser.add_argument("--stores", type=lambda text: text.split(","), default=list(COUNTS), help=", ".join(COUNTS))
    parser.add_argument("--at-least", type=float, default=0.97)
    parser.add_argument("--tmp", help="where the servers keep their data (a real disk)")
    return parser.parse_args()


def bench_of(program, options, root, servers):
    return cases.Bench(root=root, quipu_program=os.path.abspath(program), openloop_program="", seconds=options.seconds,
                       rounds=options.rounds, latency_seconds=0, overload_connections=0, servers=servers, say=print)


def rate(counts, load, number, seconds):
    """Of the run with this number."""
    counts.tidy()
    if load == "keyed":
        return loads.wrk_keyed("compare", counts.quipu.port, LOADS[load], f"run-{number}-", seconds)["per_s"]
    if load == "send":
        return loads.wrk("compare", counts.quipu.port, unread_cases.SEND, LOADS[load], seconds)["per_s"]
    return loads.wrk("compare", counts.quipu.port, cases.INCREASE, LOADS[load], seconds)["per_s"]


def compare(before, after, load, options):
    """The ratio of each pair of runs. The order within a pair alternates."""
    ratios = []
    for number in range(options.rounds):
        order = (before, after) if number % 2 == 0 else (after, before)
        measured = {counts: rate(counts, load, number, options.seconds) for counts in order}
        ratios.append(measured[after] / measured[before])
        print(f"  {measured[before]:8.0f}/s  {measured[after]:8.0f}/s  {ratios[-1]:.3f}", flush=True)
    return ratios


def main():
    options = arguments()
    worst = 1e9
    with tempfile.TemporaryDirectory(dir=options.tmp) as root, ExitStack() as servers:
        os.chmod(root, 0o755)  # PostgreSQL does not run as root
        benches = [bench_of(program, options, root, servers) for program in (options.before, options.after)]
        benches[1].started = benches[0].started  # one PostgreSQL for both
        benches[1].databases = 1000
        for store in options.stores:
            for load in options.loads:
                kind = (SENDS if load == "send" else COUNTS)[store]
                with kind(benches[0]) as before, kind(benches[1]) as after:
                    print(f"{load}-{store}: before, after, ratio", flush=True)
                    ratios = compare(before, after, load, options)
                    median = statistics.median(ratios)
                    worst = min(worst, median)
                    print(f"{load}-{store}: {median:.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
    return 0 if worst >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())

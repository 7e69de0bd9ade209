"""Measures two things in alternating runs, so that a busy machine slows both alike; shared by compare.py and
sold_out.py."""

import argparse
import os
import statistics
import tempfile
from contextlib import ExitStack, contextmanager

import cases

COUNTS = {"postgres": cases.PostgresCounts, "sqlite": cases.SqliteCounts}


def words(text):
    return text.split(",")


def parser(description, at_least):
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--rounds", type=int, default=6)
    made.add_argument("--seconds", type=int, default=4)
    made.add_argument("--stores", type=words, default=list(COUNTS), help=", ".join(COUNTS))
    made.add_argument("--at-least", type=float, default=at_least)
    made.add_argument("--tmp", help="where the servers keep their data (a real disk)")
    return made


@contextmanager
def benches(programs, options):
    """A bench for each of the programs. They share one PostgreSQL."""
    with tempfile.TemporaryDirectory(dir=options.tmp) as root, ExitStack() as servers:
        os.chmod(root, 0o755)  # PostgreSQL does not run as root
        made = [
            cases.Bench(root=root, quipu_program=os.path.abspath(program), openloop_program="", seconds=options.seconds,
                        rounds=options.rounds, latency_seconds=0, overload_connections=0, servers=servers, say=print)
            for program in programs
        ]
        for number, bench in enumerate(made):
            bench.started = made[0].started
            bench.databases = 1000 * number
        yield made


def measure(sides, rate, rounds):
    """Returns a pair of rates, of the first and the second side, for each round, and prints them with their ratio. The order
    within a pair alternates. `rate` gets a side and the number of the pair."""
    pairs = []
    for number in range(rounds):
        order = sides if number % 2 == 0 else sides[::-1]
        measured = {side: rate(side, number) for side in order}
        first, second = (measured[side] for side in sides)
        pairs.append((first, second))
        print(f"  {first:8.0f}/s  {second:8.0f}/s  {second / first:.3f}", flush=True)
    return pairs


def compare(name, sides, rate, rounds):
    """Measures both sides, and prints and returns the median of the ratios of the pairs."""
    ratios = [second / first for first, second in measure(sides, rate, rounds)]
    median = statistics.median(ratios)
    print(f"{name}: {median:.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
    return median

#!/usr/bin/python3
"""Compares refusals with successes on one program: decreases of a count that is sold out, and of one that is not.

    bench/sold_out.py PROGRAM
    bench/sold_out.py PROGRAM --rounds 8 --seconds 5

Both counts have a minValue. Measures in alternating runs, without a key, on PostgreSQL and SQLite. Prints the median of
the pairwise ratios refused / successful and their range. Exit status: 0 if every median is at least --at-least.
"""

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack

import loads
from compare import STORES, bench_of
from servers import Failed

SOLD_OUT, STOCKED = "item-1", "item-21"  # wrk appends a 1 to the path
STOCK = 2**62


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--at-least", type=float, default=0.4)
    parser.add_argument("--tmp", help="where the servers keep their data (a real disk)")
    return parser.parse_args()


def put(port, item, value):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"value": value, "minValue": 0})
    connection.request("PUT", f"/api/v1/internal/counts/{item}", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise Failed(f"setting {item}: {answer.status} {answer.read()[:200]}")
    connection.close()


def rate(counts, item, seconds):
    """Answers in a second, all of which must be refusals or none."""
    counts.tidy()
    result = loads.wrk("sold out", counts.quipu.port, ("POST", f"/api/v1/counts/{item[:-1]}", "/decrease"), 1, seconds)
    if result["status_errors"] != (result["requests"] if item == SOLD_OUT else 0):
        raise Failed(f"{item}: {result['status_errors']} of {result['requests']} were refused")
    return result["requests"] / result["seconds"]


def compare(counts, options):
    ratios = []
    for number in range(options.rounds):
        order = (STOCKED, SOLD_OUT) if number % 2 == 0 else (SOLD_OUT, STOCKED)
        measured = {item: rate(counts, item, options.seconds) for item in order}
        ratios.append(measured[SOLD_OUT] / measured[STOCKED])
        print(f"  {measured[STOCKED]:8.0f}/s  {measured[SOLD_OUT]:8.0f}/s  {ratios[-1]:.3f}", flush=True)
    return ratios


def main():
    options = arguments()
    worst = 1e9
    with tempfile.TemporaryDirectory(dir=options.tmp) as root, ExitStack() as servers:
        os.chmod(root, 0o755)  # PostgreSQL does not run as root
        bench = bench_of(options.program, options, root, servers)
        for store, kind in STORES.items():
            with kind(bench) as counts:
                put(counts.quipu.port, SOLD_OUT, 0)
                put(counts.quipu.port, STOCKED, STOCK)
                print(f"{store}: successful, refused, ratio", flush=True)
                ratios = compare(counts, options)
                median = statistics.median(ratios)
                worst = min(worst, median)
                print(f"{store}: {median:.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
    return 0 if worst >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())

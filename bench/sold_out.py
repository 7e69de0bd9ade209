#!/usr/bin/python3
"""Compares refusals with successes on one program: decreases of a count that is sold out, and of one that is not.

    bench/sold_out.py PROGRAM
    bench/sold_out.py PROGRAM --rounds 8 --seconds 5

Both counts have a minValue. Measures in alternating runs, without a key, on PostgreSQL and SQLite. Prints the median of
the pairwise ratios refused / successful and their range. Exit status: 0 if every median is at least --at-least.
"""

import http.client
import json
import sys

import loads
import paired
from servers import Failed

SOLD_OUT, STOCKED = "item-1", "item-21"  # wrk appends a 1 to the path
STOCK = 2**62


def arguments():
    parser = paired.parser(__doc__.splitlines()[0], at_least=0.4)
    parser.add_argument("program")
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
    """Returns the answers per second. Either all of them must be refusals, or none."""
    counts.tidy()
    result = loads.wrk("sold out", counts.quipu.port, ("POST", f"/api/v1/counts/{item[:-1]}", "/decrease"), 1, seconds)
    if result["status_errors"] != (result["requests"] if item == SOLD_OUT else 0):
        raise Failed(f"{item}: {result['status_errors']} of {result['requests']} were refused")
    return result["requests"] / result["seconds"]


def compare(store, counts, options):
    put(counts.quipu.port, SOLD_OUT, 0)
    put(counts.quipu.port, STOCKED, STOCK)
    print(f"{store}: successful, refused, ratio", flush=True)
    return paired.compare(store, (STOCKED, SOLD_OUT), lambda item, _: rate(counts, item, options.seconds), options.rounds)


def main():
    options = arguments()
    medians = []
    with paired.benches([options.program], options) as (bench,):
        for store in options.stores:
            with paired.COUNTS[store](bench) as counts:
                medians.append(compare(store, counts, options))
    return 0 if min(medians) >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())

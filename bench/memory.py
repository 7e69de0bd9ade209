#!/usr/bin/python3
"""Shows that the memory of a process with all roles on SQLite stays flat under a mixed load.

    bench/memory.py PROGRAM
    bench/memory.py PROGRAM --seconds 600 --every 30

All services are written to at once, with new Idempotency-Keys, messages, grants and sends all the time, so that every
file and every page cache grows. Prints the resident memory every --every seconds. Exit status: 0 if it stayed below
--at-most MB.
"""

import argparse
import os
import sys
import tempfile
import threading
import time

import loads
from cases import create_items
from gateway_cases import EmbeddedGateway, SEND as SMS, USERS
from pot_cases import POTS, SqlitePots
from servers import Quipu
from unread_cases import SEND as MESSAGE

CONNECTIONS = 16  # per load
ROUND_S = 15


class Everything(EmbeddedGateway, SqlitePots):
    """A Quipu with its defaults: all roles in one process, on SQLite, memory and local queues."""

    def __init__(self, root, program):
        self.quipu = Quipu(root, program, None, ("--log-level", "warn"))

    def __enter__(self):
        SqlitePots.__enter__(self)
        try:
            create_items(self.quipu.port)
            self.ask_users(self.configure)
        except BaseException:
            self.quipu.stop()
            raise
        return self


def increases(port, number, seconds):
    return loads.wrk_keyed("increases", port, 10_000, f"memory-{number}-", seconds, CONNECTIONS)


def coins(port, _, seconds):
    return loads.wrk_pots("coins", port, POTS, 1, "kind", seconds, CONNECTIONS)


def sends(port, _, seconds):
    return loads.wrk("sends", port, SMS, USERS, seconds, CONNECTIONS)


def messages(port, _, seconds):
    return loads.wrk("messages", port, MESSAGE, USERS, seconds, CONNECTIONS)


def grants(port, number, seconds):
    request = ("POST", "/v1/entitlements/grants", "", f'{{"user_id":"memory-{number}-',
               '","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_456"}', f"memory-{number}-")
    return loads.wrk("grants", port, request, 0, seconds, CONNECTIONS)


LOADS = (increases, coins, sends, messages, grants)


def keep_loading(load, port, until, done):
    """Adds the number of successful requests to `done`."""
    number = 0
    while time.monotonic() < until:
        result = load(port, number, max(1, min(ROUND_S, int(until - time.monotonic()))))
        done[load.__name__] = done.get(load.__name__, 0) + result["requests"] - result["status_errors"]
        number += 1


def measure(quipu, options):
    """Prints the curve and returns its highest point, in MB."""
    start, done, highest = time.monotonic(), {}, 0.0
    until = start + options.seconds
    threads = [threading.Thread(target=keep_loading, args=(load, quipu.port, until, done)) for load in LOADS]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(options.every)
        megabytes = quipu.resident_kib() * 1024 / 1e6
        highest = max(highest, megabytes)
        print(f"{time.monotonic() - start:5.0f} s  {megabytes:6.1f} MB  {sum(done.values()):,} requests", flush=True)
    print(", ".join(f"{count:,} {name}" for name, count in sorted(done.items())))
    return highest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--at-most", type=float, default=96)
    parser.add_argument("--tmp", help="where the data is kept (a real disk)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.tmp) as root:
        with Everything(root, os.path.abspath(options.program)) as everything:
            print(f"    0 s  {everything.quipu.resident_kib() * 1024 / 1e6:6.1f} MB", flush=True)
            highest = measure(everything.quipu, options)
    print(f"at most {highest:.1f} MB")
    return 0 if highest <= options.at_most else 1


if __name__ == "__main__":
    sys.exit(main())

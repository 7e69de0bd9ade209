#!/usr/bin/python3
"""Measures Quipu and its peers in one run on this machine and prints a table of ratios.

    bench/bench.py                          everything, an hour or more
    bench/bench.py --quick                  everything, briefly: does it run, not how fast
    bench/bench.py --only one-postgres,latency

Ratios and not times: what a machine gives differs from machine to machine and from hour to hour, but both sides of a
ratio were measured in the same minutes. All servers are private, on loopback, with their data in a temporary folder.
Exit status: 0 where no row failed (a skipped row says why), 1 where one did, 2 for a wrong command line.
"""

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

import bulk_cases
import cases
import citus_cases
import console_cases
import delivery_cases
import entitlement_cases
import gateway_cases
import gateway_latency_cases
import growth_cases
import http2_cases
import limit_cases
import loads
import pot_cases
import unread_cases
from cases import Bench, Row
from servers import Failed, Missing, SlowDisk, find_postgres_program, find_program

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.path.dirname(HERE), "build")
CASES = {
    **cases.CASES, **gateway_cases.CASES, **gateway_latency_cases.CASES, **entitlement_cases.CASES,
    **pot_cases.CASES, **unread_cases.CASES, **http2_cases.CASES, **bulk_cases.CASES, **growth_cases.CASES, **delivery_cases.CASES, **limit_cases.CASES,
    **console_cases.CASES, **citus_cases.CASES,
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short and one round: a smoke test")
    parser.add_argument("--only", metavar="NAME,...", help="some of: " + ", ".join(CASES))
    parser.add_argument("--seconds", type=int, help="per measurement (default 10)")
    parser.add_argument("--rounds", type=int, help="best of so many (default 3)")
    parser.add_argument("--quipu", default=os.path.join(BUILD, "quipu"), metavar="PATH")
    parser.add_argument("--openloop", default=os.path.join(BUILD, "openloop"), metavar="PATH")
    parser.add_argument("--out", default=os.path.join(HERE, "results.json"), metavar="PATH")
    parser.add_argument("--tmp", metavar="DIR", help="where the servers keep their data (a real disk)")
    parser.add_argument("--overload-connections", type=int, default=16000, metavar="N")
    parser.add_argument("--keep", action="store_true", help="keep the servers' data and logs")
    arguments = parser.parse_args()
    arguments.seconds = arguments.seconds or (2 if arguments.quick else 10)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    arguments.quipu, arguments.openloop = os.path.abspath(arguments.quipu), os.path.abspath(arguments.openloop)
    arguments.names = arguments.only.split(",") if arguments.only else list(CASES)
    unknown = [name for name in arguments.names if name not in CASES]
    if unknown or arguments.seconds < 1 or arguments.rounds < 1:
        parser.error(f"no such measurement: {', '.join(unknown)}" if unknown else "at least 1 second and 1 round")
    return arguments


def say(text):
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def raise_file_limit():
    """Servers inherit the limit, and 10,000 connections need as many file descriptors on both ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def stop(number, frame):
    """The first signal ends the run in order; a second one would only leave servers behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def warn_if_busy():
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"the machine is busy (load average {load:.1f}): the figures will be worth less")


# -- what was measured where ---------------------------------------------------------------------


def first_line(find, name, *arguments):
    try:
        # wrk prints its version with exit status 1
        done = subprocess.run([find(name), *arguments], capture_output=True, text=True, timeout=10)
        return (done.stdout or done.stderr).splitlines()[0].strip()
    except (Missing, OSError, IndexError, subprocess.TimeoutExpired):
        return "not installed"


def fsync_ms(folder, times=50):
    """Returns the median time of writing and syncing a page: the price of one commit on this disk."""
    path = os.path.join(folder, "fsync")
    took = []
    with open(path, "wb", buffering=0) as f:
        for _ in range(times):
            f.write(bytes(4096))
            start = time.perf_counter()
            os.fdatasync(f.fileno())
            took.append((time.perf_counter() - start) * 1e3)
    os.unlink(path)
    return sorted(took)[times // 2]


def file_system(folder):
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True)
    return done.stdout.strip()


def describe_machine(arguments, root):
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "load_average_before": os.getloadavg()[0],
        "file_system": file_system(root),
        "fsync_ms": round(fsync_ms(root), 3),
        "postgres": first_line(find_postgres_program, "postgres", "--version"),
        "redis": first_line(find_program, "redis-server", "--version"),
        "nats": first_line(find_program, "nats-server", "--version"),
        "wrk": first_line(find_program, "wrk", "-v"),
        "quipu": first_line(lambda path: path, arguments.quipu, "--version"),
        "seconds": arguments.seconds,
        "rounds": arguments.rounds,
        "quick": arguments.quick,
    }


# -- results -------------------------------------------------------------------------------------


def verdict(row):
    return {True: "ok", False: "NO", None: "skipped"}[row.ok]


def print_table(rows):
    head = ["what", "quipu", "peer", "ratio", "at least", "ok?"]
    lines = [[row.what, row.quipu, row.peer, row.ratio, row.at_least, verdict(row)] for row in rows]
    widths = [max(len(line[i]) for line in [head] + lines) for i in range(len(head))]
    for line in [head, ["-" * width for width in widths]] + lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
    for row in rows:
        if row.note:
            print(f"{row.name}: {row.note}")
    counts = [sum(row.ok is value for row in rows) for value in (True, False, None)]
    print("{} ok, {} not, {} skipped".format(*counts))


def write_results(path, machine, rows):
    results = {
        "machine": machine,
        "ok": all(row.ok is not False for row in rows),
        "rows": [row.as_dict() for row in rows],
        "measurements": loads.log,
    }
    with open(path, "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")


def run_case(bench, name):
    """Returns the rows of one case. If a case fails, it is a failed row, and the others still run."""
    say(f"{name} ...")
    try:
        return CASES[name](bench)
    except Missing as e:
        return [Row(name, name, note=f"skipped: {e}")]
    except (Failed, OSError, KeyError, ValueError) as e:
        return [Row(name, name, ok=False, note=f"failed: {e!r}")]


def run_cases(arguments, root, rows):
    with ExitStack() as servers:
        bench = Bench(
            root=root,
            quipu_program=arguments.quipu,
            openloop_program=arguments.openloop,
            seconds=arguments.seconds,
            rounds=arguments.rounds,
            latency_seconds=5 if arguments.quick else 60,
            overload_connections=arguments.overload_connections,
            servers=servers,
            say=say,
        )
        for name in arguments.names:
            rows += run_case(bench, name)


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    raise_file_limit()
    SlowDisk.library = os.path.join(os.path.dirname(arguments.openloop), "slow_disk.so")
    root = tempfile.mkdtemp(prefix="quipu-bench-", dir=arguments.tmp)
    os.chmod(root, 0o755)  # the user postgres needs access to the folders below
    rows = []
    interrupted = False
    try:
        warn_if_busy()
        machine = describe_machine(arguments, root)
        run_cases(arguments, root, rows)
    except KeyboardInterrupt:
        interrupted = True
        print("stopped: what was measured until now", file=sys.stderr)
    finally:
        if arguments.keep:
            say(f"data and logs are in {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    if rows:
        print_table(rows)
        write_results(arguments.out, machine, rows)
    return 1 if interrupted or any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

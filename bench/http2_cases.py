"""The cases of HTTP/2: h2load with 8 connections and 64 requests at once on each, in the same run as its peer.

Both sides of a row alternate, and the best round of each counts, as in cases.py.
"""

import os
import socket

import cases
import loads
from cases import (
    ITEMS, PostgresCounts, QuipuThroughput, Row, SlowDiskCounts, SqliteCounts, against_pgbench, against_webdis, alternate,
    throughput_row,
)
from servers import Missing, Server, SlowDiskPostgres, find_program, wait_until

FILE_BYTES = 30
RATE = 10_000
POST = ("-H", ":method: POST")


def increase_paths(items):
    method, before, after = cases.INCREASE[:3]
    assert method == "POST"
    return [f"{before}{number}{after}" for number in range(1, items + 1)]


class Http2Throughput(QuipuThroughput):
    """Rounds of h2load against one Quipu."""

    in_flight_max = loads.H2_CONNECTIONS * loads.H2_STREAMS

    def ask(self):
        return loads.h2load(self.label, self.counts.quipu.port, increase_paths(self.items), self.bench.root,
                            self.bench.seconds, POST)


# -- against the engines' own clients ------------------------------------------------------------


def h2_one_pgbench(bench):
    return against_pgbench(bench, "h2-one-pgbench", "increases on ONE item over HTTP/2, PostgreSQL / pgbench on one row",
                           1, (1, 8, 32, 100), 30, throughput=Http2Throughput)


def h2_spread_pgbench(bench):
    what = f"increases over {ITEMS:,} items over HTTP/2, PostgreSQL / pgbench, the seed's UPDATE"
    return against_pgbench(bench, "h2-spread-pgbench", what, ITEMS, (8, 32, 100), 5, throughput=Http2Throughput)


def h2_one_slow_disk(bench):
    return against_pgbench(bench, "h2-one-slow-disk", "the same on ONE item where a sync takes 1 ms", 1, (1, 8, 32, 100),
                           150, SlowDiskCounts, SlowDiskPostgres, Http2Throughput)


def h2_spread_sqlite(bench):
    what = f"increases over {ITEMS:,} items over HTTP/2, SQLite / webdis + Redis appendfsync always, INCR"
    return against_webdis(bench, "h2-spread-sqlite", what, ITEMS, 1.4, Http2Throughput)


# -- against HTTP/1.1 ----------------------------------------------------------------------------


def against_http1(bench, name, what, kind, items, floor):
    """Increases over HTTP/2 / the same over HTTP/1.1."""
    row = Row(name, what)
    try:
        find_program("h2load")
        with kind(bench) as counts:
            over_http1 = QuipuThroughput(bench, counts, f"{name} HTTP/1.1", items)
            over_http2 = Http2Throughput(bench, counts, name, items)
            best = alternate(bench.rounds, {"HTTP/1.1": over_http1.measure}, over_http2.measure)
            return [throughput_row(row, *best, floor, over_http1.problems + over_http2.problems)]
    except Missing as e:
        row.note = f"skipped: {e}"
        return [row]


def h2_one_postgres(bench):
    return against_http1(bench, "h2-one-postgres", "increases on ONE item over HTTP/2 / over HTTP/1.1, PostgreSQL",
                         PostgresCounts, 1, 2)


def h2_spread_postgres(bench):
    return against_http1(bench, "h2-spread-postgres", f"increases over {ITEMS:,} items over HTTP/2 / over HTTP/1.1, PostgreSQL",
                         PostgresCounts, ITEMS, 1.5)


def measure_p99(bench, counts, connections, *more):
    counts.tidy()
    result = loads.h2load_latency(f"h2-latency {connections}", counts.quipu.port, increase_paths(ITEMS), bench.root,
                                  bench.seconds, connections, RATE, (*POST, *more))
    bench.say(f"h2-latency: {connections} connections {result['per_s']:,.0f}/s, p99 {result['p99_ms']:.1f} ms")
    problem = "" if result["per_s"] > 0.95 * RATE and not result["status_errors"] else (
        f"{connections} connections: {result['per_s']:,.0f}/s, {result['status_errors']} refused")
    return result["p99_ms"], problem


def h2_latency(bench):
    """The lowest p99 of all rounds on both sides. h2load's own rate is even, on every connection."""
    row = Row("h2-latency", f"{RATE:,} increases/s over 8 HTTP/2 connections / over 256 of HTTP/1.1, PostgreSQL: p99",
              at_least="no higher")
    try:
        find_program("h2load")
        with PostgresCounts(bench) as counts:
            rounds = [(measure_p99(bench, counts, 256, "--h1"), measure_p99(bench, counts, loads.H2_CONNECTIONS))
                      for _ in range(bench.rounds)]
    except Missing as e:
        row.note = f"skipped: {e}"
        return [row]
    http1, http2 = (min(each[side][0] for each in rounds) for side in (0, 1))
    row.note = "; ".join(problem for each in rounds for _, problem in each if problem)
    row.quipu, row.peer, row.ratio = f"{http2:.1f} ms", f"{http1:.1f} ms", f"{http2 / http1:.2f}x"
    row.values = {"http2_p99_ms": http2, "http1_p99_ms": http1}
    row.ok = http2 <= http1 and not row.note
    return [row]


# -- the server alone ----------------------------------------------------------------------------


class Nghttpd(Server):
    """nghttpd with two threads, which serves one small file."""

    name = "nghttpd"

    def start(self):
        with open(os.path.join(self.folder, "file"), "w") as f:
            f.write("x" * FILE_BYTES)
        self.spawn([find_program("nghttpd"), "-n", "2", "--no-tls", "-d", self.folder, str(self.port)])
        wait_until("nghttpd", lambda: socket.create_connection(("127.0.0.1", self.port)).close() is None, self.process,
                   self.log_path)


def h2_healthz(bench):
    row = Row("h2-healthz", f"GET /healthz over HTTP/2 / nghttpd -n 2 serving a file of {FILE_BYTES} bytes")
    try:
        with SqliteCounts(bench) as counts, Nghttpd(bench.root) as nghttpd:
            def measure(label, port, path):
                loads.settle()
                result = loads.h2load(f"h2-healthz {label}", port, [path], bench.root, bench.seconds)
                bench.say(f"h2-healthz: {label} {result['per_s']:,.0f}/s")
                return result["per_s"]

            best = alternate(bench.rounds, {"nghttpd": lambda: measure("nghttpd", nghttpd.port, "/file")},
                             lambda: measure("quipu", counts.quipu.port, "/healthz"))
            return [throughput_row(row, *best, 0.7, [])]
    except Missing as e:
        row.note = f"skipped: {e}"
        return [row]


CASES = {
    "h2-one-pgbench": h2_one_pgbench,
    "h2-spread-pgbench": h2_spread_pgbench,
    "h2-one-slow-disk": h2_one_slow_disk,
    "h2-spread-sqlite": h2_spread_sqlite,
    "h2-one-postgres": h2_one_postgres,
    "h2-spread-postgres": h2_spread_postgres,
    "h2-latency": h2_latency,
    "h2-healthz": h2_healthz,
}

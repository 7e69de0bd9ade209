"""The cases of HTTP/2: h2load with 8 connections and 64 requests at once on each, in the same run as its peer.

Both sides of a row alternate, and the best round of each counts, as in cases.py.
"""

import os
import socket

import cases
import loads
from cases import ITEMS, PostgresCounts, Row, SqliteCounts, alternate, throughput_row
from servers import Missing, Server, find_program, wait_until

FILE_BYTES = 30
POST = ("-H", ":method: POST")


def increase_paths(items):
    method, before, after = cases.INCREASE[:3]
    assert method == "POST"
    return [f"{before}{number}{after}" for number in range(1, items + 1)]


def against_http1(bench, name, what, kind, items, floor):
    """Increases over HTTP/2 / the same over HTTP/1.1."""
    row = Row(name, what)
    try:
        find_program("h2load")
        with kind(bench) as counts:
            def over_http1():
                counts.tidy()
                result = loads.wrk(f"{name} HTTP/1.1", counts.quipu.port, cases.INCREASE, items, bench.seconds)
                bench.say(f"{name}: HTTP/1.1, wrk {result['per_s']:,.0f}/s")
                return result["per_s"]

            def over_http2():
                counts.tidy()
                result = loads.h2load(name, counts.quipu.port, increase_paths(items), bench.root, bench.seconds, POST)
                bench.say(f"{name}: HTTP/2, h2load {result['per_s']:,.0f}/s")
                return result["per_s"]

            return [throughput_row(row, *alternate(bench.rounds, {"HTTP/1.1": over_http1}, over_http2), floor, [])]
    except Missing as e:
        row.note = f"skipped: {e}"
        return [row]


def h2_one_postgres(bench):
    return against_http1(bench, "h2-one-postgres", "increases on ONE item over HTTP/2 / over HTTP/1.1, PostgreSQL",
                         PostgresCounts, 1, 2)


def h2_spread_postgres(bench):
    return against_http1(bench, "h2-spread-postgres", f"increases over {ITEMS:,} items over HTTP/2 / over HTTP/1.1, PostgreSQL",
                         PostgresCounts, ITEMS, 1.5)


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
    "h2-one-postgres": h2_one_postgres,
    "h2-spread-postgres": h2_spread_postgres,
    "h2-healthz": h2_healthz,
}

"""What viewers of the console cost, in the ways of cases.py."""

import os
import socket
import statistics
import threading
import time
from contextlib import contextmanager, nullcontext

import loads
import paired
from cases import INCREASE, ITEMS, PostgresCounts, Row
from servers import Failed

VIEWERS = 10
AT_LEAST = 0.98
PAIRS = 5  # two runs on one machine differ by more than viewers cost, so one pair says nothing
REQUEST = b"GET /operator/console/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"


def follow(viewer):
    """Reads what the console's stream sends, until it is closed."""
    try:
        while viewer.recv(1 << 16):
            pass
    except OSError:
        pass


@contextmanager
def viewers(port):
    opened = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(VIEWERS)]
    threads = [threading.Thread(target=follow, args=(viewer,)) for viewer in opened]
    try:
        for viewer in opened:
            viewer.sendall(REQUEST)
            if b" 200 " not in viewer.recv(64):
                raise Failed("the console's stream was refused")
            viewer.settimeout(None)
        for thread in threads:
            thread.start()
        yield
    finally:
        for viewer in opened:
            viewer.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            if thread.ident:
                thread.join()
        for viewer in opened:
            viewer.close()


def processor_ms(quipu, seconds):
    """Milliseconds of processor time that the process uses in a second."""
    def used_ns():
        tasks = f"/proc/{quipu.process.pid}/task"
        return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks))

    before = used_ns()
    time.sleep(seconds)
    return (used_ns() - before) / 1e6 / seconds


def processor_row(bench, quipu):
    """Their price in processor time, which two runs measure alike even where their increases per second differ."""
    most_ms = 0.02 * 1000 * os.cpu_count()
    row = Row("console", f"processor time of {VIEWERS} viewers of the console, idle server, ms per second",
              at_least=f"<= {most_ms:g} (2 %)")
    alone = processor_ms(quipu, bench.seconds)
    with viewers(quipu.port):
        watched = processor_ms(quipu, bench.seconds)
    row.quipu, row.peer = f"{watched:.1f}", f"{alone:.1f} (no viewer)"
    row.values, row.ok = {"watched_ms": watched, "alone_ms": alone}, watched - alone <= most_ms
    return row


def increases_row(bench, counts):
    """Increases per second without and with viewers, in alternating runs; the median of the ratios of the pairs."""
    row = Row("console-increases", f"increases/s with {VIEWERS} viewers of the console, beside none",
              at_least=f">= {AT_LEAST:g}x")

    def rate(side, _number):
        counts.tidy()
        with viewers(counts.quipu.port) if side == "watched" else nullcontext():
            return loads.wrk(f"console, {side}", counts.quipu.port, INCREASE, ITEMS, bench.seconds)["per_s"]

    pairs = paired.measure(("alone", "watched"), rate, max(PAIRS, bench.rounds))
    alone, watched = (statistics.median(rates) for rates in zip(*pairs))
    ratio = statistics.median(watched / alone for alone, watched in pairs)
    row.quipu, row.peer, row.ratio = f"{watched:.0f}/s", f"{alone:.0f}/s (no viewer)", f"{ratio:.3f}x"
    row.values, row.ok = {"pairs": pairs, "ratio": ratio}, ratio >= AT_LEAST
    return row


def console(bench):
    with PostgresCounts(bench) as counts:
        return [increases_row(bench, counts), processor_row(bench, counts.quipu)]


CASES = {"console": console}

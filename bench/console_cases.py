"""What viewers of the console cost, in the ways of cases.py."""

import os
import socket
import threading
import time
from contextlib import contextmanager

from cases import PostgresCounts, Row
from servers import Failed

VIEWERS = 10
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


def console(bench):
    """Their price in processor time, not in increases per second: it is far below what differs between two runs."""
    most_ms = 0.02 * 1000 * os.cpu_count()
    row = Row("console", f"processor time of {VIEWERS} viewers of the console, idle server, ms per second",
              at_least=f"<= {most_ms:g} (2 %)")
    with PostgresCounts(bench) as counts:
        alone = processor_ms(counts.quipu, bench.seconds)
        with viewers(counts.quipu.port):
            watched = processor_ms(counts.quipu, bench.seconds)
    row.quipu, row.peer = f"{watched:.1f}", f"{alone:.1f} (no viewer)"
    row.values, row.ok = {"watched_ms": watched, "alone_ms": alone}, watched - alone <= most_ms
    return [row]


CASES = {"console": console}

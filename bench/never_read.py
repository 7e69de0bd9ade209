#!/usr/bin/python3
"""Measures an honest client while others ask for the largest answers and never read them.

    bench/never_read.py PROGRAM [--rounds 3] [--seconds 5] [--connections 200] [--replaced 0]

SQLite, --client-bytes 64 MiB. The honest client lists a short dialog, one request after another. The attackers each ask 64 times
for a list of a mebibyte, and come back when they are closed; with --replaced, that many also leave and come back every 0.1 s.
Alternates between quiet and attack, and prints p50 and p99 of both, the median ratio of the p99s, and the largest resident
memory. Exit status: 0 if the ratio is at most --at-most and the memory below 160 MB.
"""

import argparse
import http.client
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time

import loads
from servers import Failed, Quipu

CLIENT_BYTES = 64 * 1024 * 1024
RESIDENT_MAX = 160_000_000
MESSAGES = 70  # of 16 KiB that become 96 KiB in an answer: far more than an answer holds
ESCAPED = "\x7f" * 16384
PIPELINED = 64
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--replaced", type=int, default=0)
    parser.add_argument("--at-most", type=float, default=3.0)
    return parser.parse_args()


def send(port, user, text):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Content-Type": "application/json", "X-User-Id": user}
    connection.request("POST", "/dialogs/send", json.dumps({"receiverId": "other", "text": text}, ensure_ascii=False), headers)
    answer = connection.getresponse()
    if answer.status // 100 != 2:
        raise Failed(f"{answer.status} {answer.read()[:200]}")
    connection.close()


class Attack:
    """Connections that ask and never read; whoever is closed comes back."""

    def __init__(self, port, count, replaced):
        self.port, self.count, self.replaced = port, count, replaced
        self.opened = 0
        self.request = (b"GET /dialogs/list?receiverId=other&limit=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-User-Id: eve\r\n\r\n"
                        * PIPELINED)

    def __enter__(self):
        self.ends = threading.Event()
        self.attackers = [self.open() for _ in range(self.count)]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def open(self):
        attacker = socket.create_connection(("127.0.0.1", self.port))
        attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        attacker.sendall(self.request)
        self.opened += 1
        return attacker

    def run(self):
        leaving = 0
        while not self.ends.wait(0.1):
            leave = {(leaving + i) % self.count for i in range(self.replaced)}
            leaving += self.replaced
            for number, attacker in enumerate(self.attackers):
                if number in leave or is_closed(attacker):
                    attacker.close()
                    self.attackers[number] = self.open()

    def __exit__(self, *exception):
        self.ends.set()
        self.thread.join()
        for attacker in self.attackers:
            attacker.close()


def is_closed(attacker):
    """Asks the kernel for the state of the connection, because nothing is read."""
    return attacker.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (TCP_CLOSE, TCP_CLOSE_WAIT)


def honest(port, seconds):
    """Returns how long each answer took, in milliseconds, sorted."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        connection.request("GET", "/dialogs/list?receiverId=other&limit=1000", headers={"X-User-Id": "alice"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise Failed(f"{answer.status} {body[:200]}")
        times.append((time.monotonic() - began) * 1000)
    connection.close()
    return sorted(times)


def percentile(times, share):
    return times[min(len(times) - 1, int(len(times) * share))]


def measure(port, options):
    quiet = honest(port, options.seconds)
    with Attack(port, options.connections, options.replaced) as attack:
        attacked = honest(port, options.seconds)
    loads.settle()
    ratio = percentile(attacked, 0.99) / percentile(quiet, 0.99)
    print(f"  p50 {percentile(quiet, 0.5):.2f} -> {percentile(attacked, 0.5):.2f} ms, p99 {percentile(quiet, 0.99):.2f} -> "
          f"{percentile(attacked, 0.99):.2f} ms, {ratio:.2f}x; {len(attacked)} answers, {attack.opened} attacks", flush=True)
    return ratio


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as root:
        settings = ("--roles", "dialogs,counters", "--client-bytes", str(CLIENT_BYTES))
        with Quipu(root, os.path.abspath(options.program), None, settings) as quipu:
            for _ in range(MESSAGES):
                send(quipu.port, "eve", ESCAPED)
            send(quipu.port, "alice", "Hello!")
            with loads.ResidentMemory(quipu) as memory:
                ratio = statistics.median(measure(quipu.port, options) for _ in range(options.rounds))
    resident = memory.max_kib * 1024
    print(f"p99 under attack: {ratio:.2f}x of quiet; at most {resident / 1e6:.0f} MB resident")
    return 0 if ratio <= options.at_most and resident < RESIDENT_MAX else 1


if __name__ == "__main__":
    sys.exit(main())

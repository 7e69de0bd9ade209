"""What is measured of deliveries: messages of the gateway to a local webhook, over connections that stay open.

The messages lie in the store before the sender starts, so that nothing but the sender is measured: it claims rows, posts
them and records how that ended. The receiver (webhook_receiver.c) and Quipu share the processors.
"""

import contextlib
import os
import sqlite3
import subprocess
import time
import uuid

from cases import Row
from servers import Failed, Missing, Quipu, http_get

CONNECTIONS = 64
WANTED_PER_S = 5_000
BODY = '{"messageId":"%s","userId":"user-%d","message":"Hello!","createdAt":"2026-01-08T07:10:01.204918Z"}'


class Receiver:
    """webhook_receiver, beside openloop in the build folder. It ends with its standard input."""

    def __init__(self, bench):
        self.program = os.path.join(os.path.dirname(bench.openloop_program), "webhook_receiver")

    def __enter__(self):
        if not os.access(self.program, os.X_OK):
            raise Missing(f"{self.program} is not built")
        self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.wait(10)

    def count(self):
        return int(http_get(self.port, "/")[1])


def fill(quipu, messages):
    """Messages that the sender has taken from the bus and not sent, in the file of a gateway that does not run."""
    path = os.path.join(quipu.folder, "data", "gateway.db")
    now_us = int(time.time() * 1e6)
    ids = [str(uuid.uuid4()) for _ in range(messages)]
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.executemany(
            "INSERT INTO outbound_messages (id, message_id, aggregate_key, trace_id, payload, occurred_at, created_at) "
            "VALUES (?1, ?1, ?2, '', ?3, ?4, ?5)",
            [(name, f"user-{n % 1000}", (BODY % (name, n % 1000)).encode(), now_us, now_us - messages + n)
             for n, name in enumerate(ids)])


def wait_for(receiver, least, limit_s):
    end = time.monotonic() + limit_s
    while receiver.count() < least:
        if time.monotonic() > end:
            raise Failed(f"{receiver.count()} of {least} messages came in {limit_s:.0f} s")
        time.sleep(0.02)


def measure(bench, receiver, messages):
    """Deliveries a second between the first tenth and the last message."""
    options = ("--roles", "gateway,sender", "--sms-channel", f"webhook:http://127.0.0.1:{receiver.port}/hook")
    quipu = Quipu(bench.root, bench.quipu_program, None, (*options, "--sms-parallel", str(CONNECTIONS)))
    with quipu:
        pass  # makes its file
    fill(quipu, messages)
    before = receiver.count()
    with quipu:
        wait_for(receiver, before + messages // 10, 60)
        start, first = time.monotonic(), receiver.count()
        wait_for(receiver, before + messages, 60 + messages / 200)
        per_s = (receiver.count() - first) / (time.monotonic() - start)
        deadline = time.monotonic() + 30
        while quipu.metric("quipu_sender_sent_total") < messages and time.monotonic() < deadline:
            time.sleep(0.1)
        recorded = quipu.metric("quipu_sender_sent_total")
    if recorded != messages or receiver.count() - before != messages:
        raise Failed(f"{messages} messages, {receiver.count() - before} received, {recorded:.0f} recorded as sent")
    bench.say(f"delivery-webhook: {per_s:,.0f}/s")
    return per_s


def delivery_webhook(bench):
    row = Row("delivery-webhook", f"messages to a local webhook, SQLite, {CONNECTIONS} connections kept alive, per second")
    row.at_least = f"{WANTED_PER_S:,}"
    with Receiver(bench) as receiver:
        best = max(measure(bench, receiver, WANTED_PER_S * bench.seconds) for _ in range(bench.rounds))
    row.quipu, row.ok = f"{best:,.0f}", best >= WANTED_PER_S
    row.values = {"per_s": best}
    return [row]


CASES = {"delivery-webhook": delivery_webhook}

"""How long users wait once an engine is back: to the first success, and until everything that waited has left.

Measured at the end of a run, under the full load, one engine after another and nothing else broken. First the outboxes
must lose what the faults of the schedule left there, or nothing else is measured. Then the engine is killed, comes back,
and the clock starts when it accepts connections; that of Kafka, when it leads its partitions. The first success is what a
client saw (the load's log), the first event that reached the broker, or, for Redis, that every process uses it again; the
outboxes are empty when nothing waits that was there when the engine came back. On SQLite the same is measured for Quipu
itself.
"""

import contextlib
import dataclasses
import re

import psycopg2

from cluster import now_us
from fault import until
from faults import KINDS
from harness.http import ConnectionLost
from settle import first_published_us, open_events

DOWN_S = 3.0
SUCCESS_MAX_S, EMPTY_MAX_S = 2.0, 30.0
GIVEN_UP_S = 60.0
BACKLOG_MAX_S = 120.0

# What needs the engine: the kind of operation in the log of a role, or the outbox whose events go there.
OPERATIONS = {"postgres": ("counts", "increase"), "quipu-1": ("counts", "increase"), "kafka": ("gateway", "send")}
EVENTS = {"nats": "entitlements", "rabbitmq": "dialogs"}


@dataclasses.dataclass
class Recovery:
    engine: str
    success_s: float | None = None  # None: not within GIVEN_UP_S
    empty_s: float | None = None
    has_outbox: bool = True

    def problems(self):
        if self.success_s is None or self.success_s > SUCCESS_MAX_S:
            yield f"{self.engine}: the first success came after {seconds(self.success_s)}, not {SUCCESS_MAX_S:g} s"
        if self.has_outbox and (self.empty_s is None or self.empty_s > EMPTY_MAX_S):
            yield f"{self.engine}: the outboxes were empty after {seconds(self.empty_s)}, not {EMPTY_MAX_S:g} s"

    def line(self):
        empty = f", {seconds(self.empty_s)} to empty outboxes" if self.has_outbox else ""
        return f"{self.engine}: {seconds(self.success_s)} to the first success{empty}"


@dataclasses.dataclass
class Backlog:
    """What the faults of the schedule had left in the outboxes when the last of them was healed."""

    events: int = 0
    empty_s: float | None = None  # None: not within BACKLOG_MAX_S

    def problems(self):
        if self.empty_s is None:
            yield f"{self.events:,} events waited after the last fault, and some still did after {BACKLOG_MAX_S:g} s, so the " \
                "recovery of engines was not measured"

    def line(self):
        return f"the faults left {self.events:,} events in the outboxes, which were gone after " \
            f"{seconds(self.empty_s, BACKLOG_MAX_S)}"


def seconds(value, most=GIVEN_UP_S):
    return f"more than {most:g} s" if value is None else f"{value:.2f} s"


class FollowedLog:
    """The log of a role, from now on."""

    def __init__(self, folder, role, kind):
        self._path = folder / f"{role}.log"
        self._position = self._path.stat().st_size if self._path.exists() else 0
        self._kind = kind
        self._operations = set()  # of the kind, as far as they were sent since
        self._rest = b""

    def first_success_us(self, since_us):
        """When the first operation of the kind succeeded since then; None: none has, up to now."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            fields = line.decode(errors="replace").split(" ")
            if len(fields) > 5 and fields[1] == ">" and fields[5] == self._kind:
                self._operations.add(fields[2])
            elif len(fields) > 3 and fields[1] == "<" and fields[2] in self._operations and re.match("2..", fields[3]) \
                    and int(fields[0]) >= since_us:
                return int(fields[0])
        return None


class Measurement:
    def __init__(self, cluster, place, conductor, folder):
        self._cluster = cluster
        self._place = place
        self._conductor = conductor
        self._folder = folder

    def clear(self):
        """Waits until the outboxes have lost what the faults of the schedule left."""
        began_us, backlog = now_us(), Backlog()

        def emptied_us():
            waiting = open_events(self._place, self._cluster.services, began_us)
            backlog.events = max(backlog.events, waiting)
            return now_us() if waiting == 0 else None

        backlog.empty_s = self._wait(emptied_us, began_us, BACKLOG_MAX_S)
        return backlog

    def run(self):
        """One Recovery for each engine that the chosen services need."""
        targets = list(self._cluster.engines) or ["quipu-1"]
        return [self._measure(target) for target in targets if self._can_measure(target)]

    def _can_measure(self, target):
        operation = OPERATIONS.get(target)
        return operation is None or operation[0] in self._cluster.services

    def _measure(self, target):
        kind = KINDS["quipu-kill" if target.startswith("quipu") else f"{target}-kill"]
        self._empty_s(now_us())
        success = self._success_of(target)
        happened = self._conductor.perform(kind(self._cluster, target, 0.5), DOWN_S)
        healed_us = happened.healed_us
        has_outbox = target not in ("redis", "kafka") and bool({"entitlements", "dialogs"} & set(self._cluster.services))
        recovery = Recovery(target, has_outbox=has_outbox)
        recovery.success_s = self._wait(lambda: success(healed_us), healed_us)
        if has_outbox:
            recovery.empty_s = self._empty_s(healed_us)
        return recovery

    def _success_of(self, target):
        """A function of the time since when; it returns when the first success was, or None."""
        if target in OPERATIONS:
            return FollowedLog(self._folder, *OPERATIONS[target]).first_success_us
        if target in EVENTS:
            return lambda since_us: first_published_us(self._place, EVENTS[target], since_us)
        return lambda _since_us: self._cache_is_up_us()

    def _cache_is_up_us(self):
        for node in self._cluster.nodes:
            states = self._cluster.ask(node, "GET", "/readyz").json()["dependencies"]
            if any(state["name"] == "cache" and state["status"] != "up" for state in states):
                return None
        return now_us()

    def _empty_s(self, since_us):
        """Seconds until no event waits that was there at that time; None: some still do."""
        def emptied_us():
            return now_us() if open_events(self._place, self._cluster.services, since_us) == 0 else None

        return self._wait(emptied_us, since_us)

    @staticmethod
    def _wait(moment, healed_us, most_s=GIVEN_UP_S):
        """Seconds from the healing to the moment; None: it did not come."""
        found = None

        def came():
            nonlocal found
            with contextlib.suppress(psycopg2.Error, OSError, ConnectionLost):
                found = moment()
            return found is not None

        return (found - healed_us) / 1e6 if until(came, most_s) else None

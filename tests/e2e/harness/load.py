"""Load that keeps a ledger: for every +1 it knows whether it was acknowledged, was refused, or has an unknown outcome.

That makes a crash test exact. Afterwards each sum must be at least what was acknowledged, and at most that plus the
unknown. Once every unknown change is retried with its key, it must be exactly the sum of both."""

import collections
import dataclasses
import random
import ssl
import time

from .counts import action, new_key
from .http import Connection, ConnectionLost
from .waiting import wait_until
from .workers import Workers

NOTHING_CHANGED = {"OVERLOADED", "STORE_UNAVAILABLE"}


@dataclasses.dataclass(frozen=True)
class Change:
    item: str
    key: str


class Load(Workers):
    """Threads that increase random items by one, each change with a key of its own, until they are stopped.

    A thread ends if it can no longer connect to its server: the server was killed, or has stopped listening."""

    def __init__(self, port, items, threads=8, keyed=True, tls=None):
        super().__init__(threads)
        self._port = port
        self._tls = tls
        self._items = list(items)
        self._keyed = keyed
        self.acknowledged = {}  # Change -> value
        self.unknown = []
        self.refused = collections.Counter()  # code -> how often
        self.unexpected = []  # answers that such a load should never get
        self._served_at = None
        self.longest_gap = 0.0  # seconds between two acknowledged changes, of any thread
        self.slowest = 0.0  # seconds until a change was acknowledged

    def wait_acknowledged(self, more):
        goal = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= goal, f"{more} more acknowledged changes")

    def wait_refused(self, more=1):
        goal = sum(self.refused.values()) + more
        wait_until(lambda: sum(self.refused.values()) >= goal, f"{more} more refusals")

    def _work(self, seed):
        choose = random.Random(seed)
        while not self._stop.is_set():
            try:
                connection = Connection(self._port, tls=self._tls)
            except (ConnectionError, ssl.SSLError):
                return
            with connection:
                self._use(connection, choose)

    def _use(self, connection, choose):
        """Sends changes on one connection until it ends."""
        while not self._stop.is_set():
            change = Change(choose.choice(self._items), new_key())
            headers = {"Idempotency-Key": change.key} if self._keyed else {}
            asked_at = time.monotonic()
            try:
                answer = connection.ask("POST", action(change.item, "increase"), headers=headers)
            except (ConnectionLost, TimeoutError):
                with self._lock:
                    self.unknown.append(change)
                return
            self._record(change, answer, asked_at)
            if answer.header("connection") == "close":
                return

    def _record(self, change, answer, asked_at):
        with self._lock:
            if answer.status == 200:
                self.acknowledged[change] = answer.json()["value"]
                self._note_served(asked_at, time.monotonic())
                return
            if answer.status == 503 and (answer.header("retry-after") or "").isdigit():
                code = answer.code
                if code in NOTHING_CHANGED or code == "OUTCOME_UNKNOWN":
                    self.refused[code] += 1
                    if code == "OUTCOME_UNKNOWN":
                        self.unknown.append(change)
            else:
                self.unexpected.append(answer)
        self._stop.wait(0.01)  # a refused client waits a moment before it tries again

    def _note_served(self, asked_at, now):
        self.slowest = max(self.slowest, now - asked_at)
        if self._served_at is not None:
            self.longest_gap = max(self.longest_gap, now - self._served_at)
        self._served_at = now

    def unserved_s(self):
        """How many seconds ago a change was last acknowledged."""
        served_at = self._served_at
        return 0.0 if served_at is None else time.monotonic() - served_at

    def availability(self):
        """How much the load noticed of what was done to the server, for the one who reads the output."""
        return (f"{len(self.acknowledged)} changes acknowledged, {sum(self.refused.values())} refused, "
                f"at most {self.longest_gap:.2f} s without one, the slowest after {self.slowest:.2f} s")

    def assert_nothing_unexpected(self):
        assert self.unexpected == []

    def assert_values_unique(self):
        """With nothing but +1, no two callers can have been given the same value of one item."""
        told = collections.Counter((change.item, value) for change, value in self.acknowledged.items())
        assert not [which for which, times in told.items() if times > 1]

    def assert_settled(self, counts):
        """Compares the ledger with the store; `counts` is a client of a server that is up again."""
        self.assert_nothing_unexpected()
        self.assert_values_unique()
        before = self._total(counts)
        assert len(self.acknowledged) <= before <= len(self.acknowledged) + len(self.unknown), (
            f"{len(self.acknowledged)} acknowledged, {len(self.unknown)} unknown, {before} in the store"
        )
        if not self._keyed:
            return
        for change in self.unknown:
            answer = counts.increase(change.item, key=change.key)
            assert answer.status == 200, answer
        for change, value in list(self.acknowledged.items())[-100:]:
            answer = counts.increase(change.item, key=change.key)
            assert (answer.status, answer.json()["value"]) == (200, value), answer
            assert answer.header("idempotent-replayed") == "true", answer
        assert self._total(counts) == len(self.acknowledged) + len(self.unknown)

    def _total(self, counts):
        return sum(entry["currentValue"] for entry in counts.list(*self._items).json())

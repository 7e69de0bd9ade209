"""Load on pots that keeps a ledger: for every change it knows what was added or removed, or that it was refused, or
that its outcome is unknown.

At the end, the acknowledged additions minus the acknowledged removals must be what is in the tables, coin by coin. A
change of unknown outcome is retried with its key, and its answer completes the ledger."""

import collections
import dataclasses
import random
import threading

from .http import Connection, ConnectionLost
from .pots import KINDS, counts_of, new_key, request
from .waiting import HANG_S, wait_until

EXPECTED_REFUSALS = {"failed_precondition", "aborted", "unavailable"}


@dataclasses.dataclass(frozen=True)
class Change:
    method: str
    pot_id: int
    fields: dict
    key: str

    def request(self):
        return request(self.method, self.fields, key=self.key)


def random_change(choose, pot_ids):
    pot_id = choose.choice(pot_ids)
    kinds = choose.sample(list(KINDS), choose.randint(1, 3))
    some = [{"kind": kind, "count": choose.randint(1, 40)} for kind in kinds]
    method, fields = choose.choice([
        ("AddCoins", {"coins": some}), ("AddCoins", {"coins": some}),
        ("RemoveCoins", {"coins": some}), ("RemoveCoins", {"count": choose.randint(1, 100)}),
    ])
    return Change(method, pot_id, {"pot_id": pot_id, **fields}, new_key())


class PotLoad(threading.Thread):
    """Keeps a burst of random changes under way on connections to one server, until it is stopped or the server is
    gone."""

    def __init__(self, port, pot_ids, seed, connections=24, keyed=True):
        super().__init__(daemon=True)
        self._port, self._pot_ids, self._keyed = port, pot_ids, keyed
        self._choose = random.Random(seed)
        self._size = connections
        self._stopping = threading.Event()
        self.balance = collections.Counter()  # (pot_id, kind) -> acknowledged additions minus removals
        self.acknowledged = 0
        self.refused = collections.Counter()
        self.unknown = []
        self.unexpected = []

    def stop(self):
        self._stopping.set()
        self.join(HANG_S)
        assert not self.is_alive(), "a request was never answered"

    def wait_acknowledged(self, more):
        goal = self.acknowledged + more
        wait_until(lambda: self.acknowledged >= goal, f"{more} more acknowledged changes")

    def run(self):
        try:
            connections = [Connection(self._port, timeout=HANG_S) for _ in range(self._size)]
        except ConnectionError:
            return
        while not self._stopping.is_set() and self._burst(connections):
            pass
        for connection in connections:
            connection.close()

    def _burst(self, connections):
        """Sends on all connections, then reads from all. Returns False if the server is gone."""
        changes = [random_change(self._choose, self._pot_ids) for _ in connections]
        if not self._keyed:
            changes = [dataclasses.replace(change, key=None) for change in changes]
        sent = []
        alive = True
        for connection, change in zip(connections, changes):
            try:
                connection.send(change.request())
            except ConnectionLost:
                alive = False
            sent.append(change)
        for connection, change in zip(connections, sent):
            try:
                self.record(change, connection.read_answer())
            except ConnectionLost:
                self.unknown.append(change)
                alive = False
        return alive

    def record(self, change, answer):
        if answer.status == 200:
            sign = 1 if change.method == "AddCoins" else -1
            for kind, count in counts_of(answer.json()).items():
                self.balance[change.pot_id, kind] += sign * count
            self.acknowledged += 1
        elif answer.json()["code"] not in EXPECTED_REFUSALS:
            self.unexpected.append((change, answer))
        elif answer.json()["meta"]["reason"] == "OUTCOME_UNKNOWN":
            self.unknown.append(change)
        else:
            self.refused[answer.json()["meta"]["reason"]] += 1

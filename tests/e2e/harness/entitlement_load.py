"""Clients that grant and revoke without pause, and what a model says about their answers."""

import collections
import random

from .entitlements import GRANTS, REVOKES, change, new_user, request_bytes
from .http import Connection, ConnectionLost
from .waiting import wait_until
from .workers import Workers


class Grants(Workers):
    """Threads that grant to new users, and count the answers."""

    def __init__(self, *servers, threads=3):
        super().__init__(threads)
        self._servers = servers
        self.statuses = collections.Counter()
        self.may_lose_connections = False

    finish = Workers.stop

    def _work(self, number):
        try:
            with Connection(self._servers[number % len(self._servers)].port) as connection:
                while not self._stop.is_set():
                    connection.send(request_bytes(GRANTS, change(new_user())))
                    self.statuses[connection.read_answer().status] += 1
        except (ConnectionLost, ConnectionError):
            assert self.may_lose_connections

    def wait_granted(self, more):
        goal = self.statuses[200] + more
        wait_until(lambda: self.statuses[200] >= goal, f"{more} more grants")


class Rivals(Workers):
    """Threads that grant and revoke a few entitlements at random, each change noted with its answer."""

    def __init__(self, pairs, *servers, threads=8, changes=60):
        super().__init__(threads)
        self.answers = []  # (target, (user, unit), answer)
        self._pairs = pairs
        self._servers = servers
        self._changes = changes

    def run(self):
        self.start()
        self.join()
        assert len(self.answers) == len(self._threads) * self._changes
        return self

    def _work(self, number):
        choose = random.Random(number)
        with Connection(self._servers[number % len(self._servers)].port) as connection:
            for _ in range(self._changes):
                target, pair = choose.choice([GRANTS, REVOKES]), choose.choice(self._pairs)
                connection.send(request_bytes(target, change(*pair)))
                answer = connection.read_answer()
                with self._lock:
                    self.answers.append((target, pair, answer))


def assert_sequential(answers):
    """Some order of the changes of one entitlement explains every answer. Returns the last version.

    A change's version is its place in that order; a refusal shows the version it stands behind, and no version has
    another state than its number says: odd ones are ACTIVE, even ones REVOKED.
    """
    changed = []
    for target, answer in answers:
        wanted = "ACTIVE" if target == GRANTS else "REVOKED"
        if answer.status == 200:
            assert answer.json()["status"] == wanted
            changed.append(answer.json()["version"])
            assert changed[-1] % 2 == (1 if wanted == "ACTIVE" else 0), answer
        elif answer.status == 409:
            shown = answer.json()["entitlement"]
            assert (answer.code, shown["status"]) == ("ENTITLEMENT_STATE_CONFLICT", wanted), answer
            assert shown["version"] % 2 == (1 if wanted == "ACTIVE" else 0), answer
        else:
            assert (target, answer.status, answer.code) == (REVOKES, 404, "ENTITLEMENT_NOT_FOUND"), answer
    assert sorted(changed) == list(range(1, len(changed) + 1)), "versions have no gap and none is there twice"
    return len(changed)

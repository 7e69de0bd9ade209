"""Clients that grant and revoke without pause, and a comparison of their answers with a model."""

import collections
import random

from .entitlements import GRANTS, REVOKES, change, new_user, request_bytes
from .http import Connection, ConnectionLost
from .waiting import wait_until
from .workers import Workers


class Grants(Workers):
    """Threads that grant to new users and count the answers."""

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


PURCHASES = [f"p_{number}" for number in range(15)]


def random_change(choose, pair):
    """Returns a grant or revoke as (target, body): mostly of a purchase, otherwise for a reason, or of everything."""
    target = choose.choice([GRANTS, REVOKES])
    if choose.random() < 0.7:
        return target, change(*pair, "purchase" if target == GRANTS else "refund", choose.choice(PURCHASES))
    return target, change(*pair, choose.choice(["gift", "trial"]), None)


class Rivals(Workers):
    """Threads that grant and revoke a few entitlements at random, and note each change with its answer."""

    def __init__(self, pairs, *servers, threads=8, changes=60):
        super().__init__(threads)
        self._answers = []  # (pair, target, body, answer)
        self._pairs = pairs
        self._servers = servers
        self._changes = changes

    def run(self):
        self.start()
        self.join()
        assert len(self._answers) == len(self._threads) * self._changes
        return self

    def answers_of(self, pair):
        return [(target, body, answer) for other, target, body, answer in self._answers if other == pair]

    def _work(self, number):
        choose = random.Random(number)
        with Connection(self._servers[number % len(self._servers)].port) as connection:
            for _ in range(self._changes):
                pair = choose.choice(self._pairs)
                target, body = random_change(choose, pair)
                connection.send(request_bytes(target, body))
                answer = connection.read_answer()
                with self._lock:
                    self._answers.append((pair, target, body, answer))

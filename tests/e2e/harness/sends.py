"""Clients that send without pause and keep a ledger: admitted, refused, or with an unknown outcome."""

import collections
import itertools

from .counts import new_key
from .gateway import SEND, new_text
from .http import Connection, ConnectionLost
from .waiting import wait_until
from .workers import Workers


class Sends(Workers):
    """Threads that send to `user` on the servers' ports in turn, until they are stopped, until each has been refused
    `refusals` times, or until their server is gone."""

    def __init__(self, user, *servers, threads=4, refusals=None, keyed=False):
        super().__init__(threads)
        self.user = user
        self._refusals = refusals
        self._keyed = keyed
        self._ports = [server.port for server in servers]
        self.admitted = {}  # message -> the answer's body
        self.refused = 0  # 429
        self.failed = collections.Counter()  # code of a 503 -> how often
        self.unknown = []  # (message, key)
        self.unchanged = []  # messages of refusals, which promise that nothing has changed
        self.unexpected = []

    def finish(self):
        """Waits until every client has ended by itself."""
        self.join()
        assert self.unexpected == []
        return self

    def wait_admitted(self, more, since=0):
        """Waits until `more` sends were admitted after the first `since`."""
        wait_until(lambda: len(self.admitted) >= since + more, f"{more} more admitted sends")

    def wait_under_way(self, more, since=0):
        """The same, or until the limit is used up, because it is not known how many were admitted before this call."""
        wait_until(lambda: len(self.admitted) >= since + more or self.refused, f"{more} more admitted sends")

    def wait_refused(self, more=1):
        goal = self.refused + more
        wait_until(lambda: self.refused >= goal, f"{more} more refusals")

    def wait_failed(self, more=1):
        goal = sum(self.failed.values()) + more
        wait_until(lambda: sum(self.failed.values()) >= goal, f"{more} more times 503")

    def message_ids(self):
        return [body["messageId"] for body in self.admitted.values()]

    def _work(self, number):
        refused = itertools.count(1)
        while not self._stop.is_set():
            try:
                connection = Connection(self._ports[number % len(self._ports)])
            except ConnectionError:
                return
            with connection:
                if self._use(connection, refused):
                    return

    def _use(self, connection, refused):
        """Sends on one connection until it ends. Returns whether this client is done."""
        while not self._stop.is_set():
            message, key = new_text(), new_key() if self._keyed else None
            headers = {"Idempotency-Key": key} if key else {}
            try:
                answer = connection.ask("POST", SEND, {"userId": self.user, "message": message}, headers)
            except (ConnectionLost, TimeoutError):
                with self._lock:
                    self.unknown.append((message, key))
                return False
            self._record(message, key, answer)
            if answer.status == 429 and next(refused) == self._refusals:
                return True
            if answer.header("connection") == "close":
                return False
        return True

    def _record(self, message, key, answer):
        with self._lock:
            if answer.status == 200:
                self.admitted[message] = answer.json()
            elif answer.status == 429:
                self.refused += 1
                self.unchanged.append(message)
            elif answer.status == 503 and (answer.header("retry-after") or "").isdigit():
                self.failed[answer.code] += 1
                if answer.code == "OUTCOME_UNKNOWN":
                    self.unknown.append((message, key))
                else:
                    self.unchanged.append(message)
            else:
                self.unexpected.append(answer)
        if answer.status == 503:
            self._stop.wait(0.01)  # a refused client waits a moment before it tries again

"""No sequence of outages, crashes and retries puts more than the limit of a user under one window-start on the topic."""

import collections
import json
import random

import pytest

from harness.counts import new_key
from harness.gateway import SEND, new_text
from harness.gateway_stacks import PostgresStack, SqliteStack
from harness.http import ConnectionLost
from harness.kafka import Kafka
from harness.waiting import HANG_S, wait_until

LIMIT = 5
WINDOW_S = 60
FATES_UNKNOWN = ("OUTCOME_UNKNOWN", "OVERLOADED", "STORE_UNAVAILABLE", "BUS_UNAVAILABLE")


@pytest.fixture(scope="module")
def broker():
    with Kafka() as running:
        yield running


class OnKafka:
    """A stack whose bus is the broker, and whose clock can be moved from one start to the next."""

    def __init__(self, stack, broker):
        self._stack = stack
        self._broker = broker

    def arguments(self):
        return [*self._stack.arguments(), "--roles", "gateway", "--gateway-bus", self._broker.url,
                "--gateway-window-unit", "1s"]


@pytest.fixture(params=["sqlite", "postgres"])
def stack(request, tmp_path, broker):
    if request.param == "sqlite":
        return OnKafka(SqliteStack(tmp_path, "none"), broker)
    return OnKafka(PostgresStack(tmp_path, "none", request.getfixturevalue("database")), broker)


class Storm:
    """One user's sends, what became of them, and the server that comes and goes under them."""

    def __init__(self, serve, gateway_client, stack, broker, dice):
        self._serve, self._gateway_client = serve, gateway_client
        self._stack, self._broker, self._dice = stack, broker, dice
        self._offset_s = 0
        self.open = {}  # key -> text, of sends whose outcome is not known
        self.admitted = {}  # message id -> status
        self.start()
        self.user = self._gateway.new_user(LIMIT, WINDOW_S)

    def start(self):
        self._server = self._serve(self._stack, env={"QUIPU_TEST_CLOCK_OFFSET": f"{self._offset_s}s"})
        self._gateway = self._gateway_client(self._server)

    def crash(self):
        """kill -9, and a start some time later: in the same window, or in the next."""
        self._server.kill()
        self._offset_s += self._dice.choice([0, 0, WINDOW_S])
        self.start()

    def send(self, key, text):
        try:
            answer = self._gateway.ask("POST", SEND, {"userId": self.user, "message": text}, key=key)
        except (ConnectionLost, TimeoutError):
            self.open[key] = text
            return None
        if answer.status == 200:
            self.admitted[answer.json()["messageId"]] = key
            self.open.pop(key, None)
        elif answer.status == 503:
            assert answer.code in FATES_UNKNOWN, answer
            self.open[key] = text
        else:
            assert answer.status == 429, answer  # a key that is pending stays so
        return answer.status

    def send_new(self):
        return self.send(new_key(), new_text())

    def retry(self):
        for key, text in self._dice.sample(sorted(self.open.items()), min(3, len(self.open))):
            self.send(key, text)

    def freeze_the_broker(self):
        """Sends end in doubt: the broker may have taken them, and takes them when it goes on."""
        with self._broker.frozen():
            for _ in range(2):
                self.send_new()
        wait_until(self.bus_is_up, "the bus is up again")

    def bus_is_up(self):
        return self._server.ask("GET", "/readyz").status == 200

    def settle(self):
        """A new window for every few: until the outcome of every key is known."""
        while self.open:
            before = len(self.open)
            for key, text in sorted(self.open.items()):
                self.send(key, text)
            if len(self.open) == before:
                self._server.stop()
                self._offset_s += WINDOW_S
                self.start()
                wait_until(self.bus_is_up, "the bus is up")


def on_topic(broker, user):
    """{window-start: ids of the user's messages}."""
    windows = collections.defaultdict(set)
    for record in broker.read():
        event = json.loads(record.value)
        if event["userId"] == user:
            windows[dict(record.headers)["window-start"]].add(event["messageId"])
    return windows


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_window_ever_holds_more_than_the_limit(serve, gateway_client, stack, broker, seed):
    dice = random.Random(seed)
    storm = Storm(serve, gateway_client, stack, broker, dice)
    steps = [storm.freeze_the_broker] * 2 + [storm.crash] * 4 + [storm.retry] * 8 + [storm.send_new] * 16
    dice.shuffle(steps)
    for step in steps:
        step()
    storm.settle()
    windows = on_topic(broker, storm.user)
    assert all(len(ids) <= LIMIT for ids in windows.values()), windows
    assert set(storm.admitted) <= set().union(*windows.values())


def test_a_pending_send_that_is_retried_in_a_later_window_takes_a_slot_there(serve, gateway_client, stack, broker):
    """The measured case: keyed sends in doubt, a new window that is used up, and the old keys again."""
    storm = Storm(serve, gateway_client, stack, broker, random.Random(1))
    storm.freeze_the_broker()
    pending = dict(storm.open)
    assert len(pending) == 2
    storm._server.stop()
    storm._offset_s += WINDOW_S
    storm.start()
    wait_until(storm.bus_is_up, "the bus is up")
    assert [storm.send_new() for _ in range(LIMIT)] == [200] * LIMIT
    assert [storm.send(key, text) for key, text in pending.items()] == [429, 429]
    storm.settle()
    windows = on_topic(broker, storm.user)
    assert all(len(ids) <= LIMIT for ids in windows.values()), windows
    assert len(storm.admitted) == LIMIT + 2

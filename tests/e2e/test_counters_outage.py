"""RabbitMQ, Redis or PostgreSQL away, processes killed: nothing is lost or counted twice, recovery needs nobody."""

import contextlib
import random

import pytest

from engines import shared
from harness.available import available
from harness.counts import new_key
from harness.http import Connection, ConnectionLost
from harness.rabbitmq import NEW_QUEUE, READ_QUEUE, Host
from harness.unread import PostgresUnread, new_user
from harness.waiting import wait_until
from harness.workers import Workers

# For clients that keep their connection while an engine starts: on a busy machine that takes more than the minute for
# which a connection may be idle.
PATIENT = ["--idle-timeout", "1h"]


@pytest.fixture(scope="module")
def rabbitmq_server(own_rabbitmq):
    """Tests of this file stop it: nobody else may use it meanwhile."""
    return own_rabbitmq


def dependencies(server):
    answer = server.ask("GET", "/readyz")
    return answer.status, {entry["name"]: entry["status"] for entry in answer.json()["dependencies"]}


def wait_dependency(server, name, status):
    """Until /readyz says so; the process is ready all the while, for it can do without."""

    def is_so():
        ready, statuses = dependencies(server)
        assert ready == 200
        return statuses[name] == status

    wait_until(is_so, f"/readyz says that {name} is {status}")


# ---- RabbitMQ


def test_with_rabbitmq_away_sends_succeed_and_counters_catch_up(serve, unread_client, full_unread, rabbitmq_server):
    """Of processes that have seen it and of one that starts meanwhile: RabbitMQ takes so long to start that one outage
    serves both."""
    servers = [serve(full_unread.play(role), *PATIENT) for role in ("dialogs", "counters")]
    dialogs, counters = (unread_client(server) for server in servers)
    bob, eve = new_user(), new_user()
    messages = [dialogs.sent(new_user(), bob) for _ in range(3)]
    counters.wait_count(bob, 3)
    with rabbitmq_server.away():
        servers.append(serve(full_unread, *PATIENT))
        late = unread_client(servers[-1])
        for server in servers:
            wait_dependency(server, "unread-bus", "down")
        messages += [dialogs.sent(new_user(), bob) for _ in range(20)]
        assert dialogs.read_batch(bob, messages[:5]).json()["updated"] == 5
        assert counters.count(bob) == 3
        of_eve = [late.sent(new_user(), eve) for _ in range(5)]
        assert late.read(eve, of_eve[0]).json()["updated"] == 1
        assert late.count(eve) == 0
    for client in (counters, late):
        client.wait_count(bob, 18)
        client.wait_count(eve, 4)
    for server in servers:
        wait_dependency(server, "unread-bus", "up")
    assert dialogs.read_batch(bob, messages).json()["updated"] == 18
    counters.wait_count(bob, 0)
    full_unread.wait_agreement()


def test_a_crash_of_rabbitmq_loses_nothing(serve, unread_client, full_unread, rabbitmq_server):
    unread = unread_client(serve(full_unread))
    users = [new_user() for _ in range(5)]
    for number in range(20):
        unread.sent(users[0], users[number % 5])
    rabbitmq_server.kill()
    try:
        for number in range(20):
            unread.sent(users[0], users[number % 5])
    finally:
        rabbitmq_server.start()
    full_unread.wait_agreement()
    assert full_unread.counted() == dict.fromkeys(users, 8)


# ---- Redis and PostgreSQL


def wait_cached(stack, unread, user, count):
    """A reader fills the cache, unless a change came between; then the next one does."""

    def is_cached():
        return unread.count(user) == count and (stack.cached(user) or {}).get("count") == count

    wait_until(is_cached, f"the cache has {count} for {user}")


def test_redis_away_costs_no_answer(serve, unread_client, own_redis_unread, own_redis):
    server = serve(own_redis_unread)
    unread = unread_client(server)
    bob = new_user()
    unread.sent(new_user(), bob)
    unread.wait_count(bob, 1)
    own_redis.stop()
    unread.sent(new_user(), bob)
    unread.wait_count(bob, 2)
    wait_dependency(server, "cache", "down")
    own_redis.start()
    wait_dependency(server, "cache", "up")
    unread.sent(new_user(), bob)
    wait_cached(own_redis_unread, unread, bob, 3)


def test_a_start_without_redis_serves(serve, unread_client, own_redis_unread, own_redis):
    own_redis.stop()
    server = serve(own_redis_unread)
    unread = unread_client(server)
    bob = new_user()
    unread.sent(new_user(), bob)
    unread.wait_count(bob, 1)
    own_redis.start()
    wait_dependency(server, "cache", "up")
    wait_cached(own_redis_unread, unread, bob, 1)


@pytest.fixture(scope="module")
def outage_postgres():
    """For all tests of this file that stop it; each has a database of its own. Skips where there is no PostgreSQL."""
    with available(shared.own_postgres) as server:
        yield server


@pytest.fixture
def own_postgres(outage_postgres):
    if outage_postgres.pid is None:  # a test has failed before it could start it again
        outage_postgres.start()
    return outage_postgres


@pytest.fixture
def own_postgres_unread(own_postgres, rabbitmq_server, redis_server, tmp_path):
    return PostgresUnread(tmp_path, own_postgres.create_database(), Host.new(rabbitmq_server), redis_server)


def test_postgres_away_is_a_503_and_recovery_needs_nobody(serve, unread_client, own_postgres, own_postgres_unread):
    server = serve(own_postgres_unread, *PATIENT)
    unread = unread_client(server)
    bob, eve = new_user(), new_user()
    messages = [unread.sent(new_user(), bob) for _ in range(3)]
    wait_cached(own_postgres_unread, unread, bob, 3)
    own_postgres.stop("immediate")
    wait_until(lambda: dependencies(server)[0] == 503, "/readyz says not ready")
    for answer in (unread.send(eve, bob), unread.list(eve, bob), unread.read(bob, messages[0]), unread.counter(eve)):
        assert (answer.status, answer.code) == (503, "STORE_UNAVAILABLE")
    assert unread.count(bob) == 3  # from the cache
    own_postgres.start()
    server.wait_ready()
    assert unread.read(bob, messages[0]).json()["updated"] == 1
    unread.wait_count(bob, 2)


def test_events_that_come_while_postgres_is_away_are_counted_later(
    serve, unread_client, database, own_postgres, own_postgres_unread, tmp_path
):
    """Dialogs and counters each on a server of their own."""
    stack = own_postgres_unread
    dialogs_stack = PostgresUnread(tmp_path, database, stack.host, stack.redis)
    dialogs = unread_client(serve(dialogs_stack.play("dialogs")))
    server = serve(stack.play("counters"))
    counters = unread_client(server)
    bob = new_user()
    dialogs.sent(new_user(), bob)
    counters.wait_count(bob, 1)
    own_postgres.stop("immediate")
    for _ in range(10):
        dialogs.sent(new_user(), bob)
    own_postgres.start()
    server.wait_ready()
    wait_until(lambda: stack.counted() == {bob: 11}, "all are counted")
    counters.wait_count(bob, 11)
    assert stack.host.depth(f"{NEW_QUEUE}_error") in (None, 0)


def test_a_start_without_postgres_waits_for_it(serve, unread_client, own_postgres, own_postgres_unread):
    own_postgres.stop()
    server = serve(own_postgres_unread, ready=False)
    assert unread_client(server).send(new_user(), new_user()).status == 503
    own_postgres.start()
    server.wait_ready()
    bob = new_user()
    unread = unread_client(server)
    unread.sent(new_user(), bob)
    unread.wait_count(bob, 1)


# ---- watching


def test_metrics_of_relay_and_intakes_move(serve, unread_client, unread_stack):
    server = serve(unread_stack)
    unread = unread_client(server)
    bob = new_user()
    messages = [unread.sent(new_user(), bob) for _ in range(5)]
    unread.wait_count(bob, 5)
    unread.read_batch(bob, messages[:2])
    unread.wait_count(bob, 3)

    def moved():
        metrics = server.metrics()
        return (metrics['quipu_outbox_published_total{outbox="dialogs"}'] == 7
                and metrics[f'quipu_inbox_taken_total{{inbox="{NEW_QUEUE}"}}'] == 5
                and metrics[f'quipu_inbox_taken_total{{inbox="{READ_QUEUE}"}}'] == 2)

    wait_until(moved, "7 events were published, 5 and 2 of them taken")
    metrics = server.metrics()
    assert metrics['quipu_outbox_given_up_total{outbox="dialogs"}'] == 0
    assert metrics[f'quipu_inbox_poison_total{{inbox="{NEW_QUEUE}"}}'] == 0
    wait_until(lambda: server.metrics()['quipu_outbox_pending{outbox="dialogs"}'] == 0, "nothing waits")


# ---- all at once


class Load(Workers):
    """Threads that send and read on the dialogs that there are, each request with its key until it is answered."""

    def __init__(self, users, servers, threads=4):
        super().__init__(threads)
        self.users = users
        self.ports = [server.port for server in servers]  # of the dialogs that run
        self.sent = 0
        self.unexpected = []

    def wait_sent(self, more):
        goal = self.sent + more
        wait_until(lambda: self.sent >= goal, f"{more} more messages")

    def _ask(self, dice, user, target, body):
        """With its key, until it is answered."""
        headers = {"X-User-Id": user, "Idempotency-Key": new_key()}
        while not self._stop.is_set():
            with contextlib.suppress(ConnectionLost, OSError):
                with Connection(dice.choice(self.ports)) as connection:
                    answer = connection.ask("POST", target, body, headers)
                if answer.status == 200:
                    return answer.json()
                if answer.status not in (503, 409):  # 409: the first try is still under way
                    self.unexpected.append(answer)
            self._stop.wait(0.02)
        return None

    def _work(self, number):
        dice = random.Random(number)
        unread = []
        while not self._stop.is_set():
            user = dice.choice(self.users)
            answer = self._ask(dice, dice.choice(self.users), "/dialogs/send", {"receiverId": user, "text": "x"})
            if answer is None:
                return
            unread.append((user, answer["messageId"]))
            with self._lock:
                self.sent += 1
            if dice.random() < 0.5:
                reader, message = unread.pop(dice.randrange(len(unread)))
                self._ask(dice, reader, "/dialogs/read-batch", {"messageIds": [message]})


@pytest.mark.full
def test_under_load_with_everything_killed_in_turn_every_count_is_right_in_the_end(
    serve, unread_client, own_redis_unread, own_redis, rabbitmq_server
):
    stack = own_redis_unread
    dialogs = [serve(stack.play("dialogs"), "--outbox-lease", "2s") for _ in range(2)]
    counters = [serve(stack.play("counters")) for _ in range(2)]
    users = [new_user() for _ in range(12)]
    with Load(users, dialogs) as load:
        load.wait_sent(60)
        for number in range(2):
            dialogs[number].kill()
            load.wait_sent(40)
            dialogs[number] = serve(stack.play("dialogs"), "--outbox-lease", "2s")
            load.ports = [server.port for server in dialogs]
            counters[number].kill()
            load.wait_sent(40)
            own_redis.do("FLUSHALL")
            counters[number] = serve(stack.play("counters"))
            load.wait_sent(40)
        with rabbitmq_server.away():
            load.wait_sent(40)
        load.wait_sent(40)
        own_redis.stop()
        load.wait_sent(40)
        own_redis.start()
        load.wait_sent(40)
    assert load.unexpected == []
    stack.wait_agreement()
    expected = stack.unread()
    assert sum(expected.values()) > 100
    for server in counters:
        wait_dependency(server, "cache", "up")
        client = unread_client(server)
        for user in users:
            assert client.count(user) == expected.get(user, 0)
            assert [entry["count"] for entry in client.counters(user).json()] == [expected.get(user, 0)]
    assert stack.host.depth(f"{NEW_QUEUE}_error") in (None, 0)
    assert stack.host.depth(f"{READ_QUEUE}_error") in (None, 0)

"""Events as others publish them: every spelling is counted, what cannot be used goes aside, order does not matter."""

import datetime
import itertools
import json
import random

import pytest

from harness.rabbitmq import NEW_KEY, NEW_QUEUE, READ_KEY, READ_QUEUE
from harness.unread import PostgresUnread, envelope, message_read, new_message, new_user, now, pascal
from harness.waiting import wait_until

SPELLINGS = {
    "bare camelCase": lambda message, kind: message,
    "bare PascalCase": lambda message, kind: pascal(message),
    "envelope camelCase": envelope,
    "envelope PascalCase": lambda message, kind: envelope(message, kind, pascal),
    "envelope without type": lambda message, kind: {"message": message},
}

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 5))]


@pytest.fixture(scope="module")
def stack(postgres_server, rabbitmq_server, redis_server, tmp_path_factory):
    """What the tests of this file share that only publish, each for users of its own."""
    fresh = postgres_server.create_database()
    yield PostgresUnread(tmp_path_factory.mktemp("unread"), fresh, rabbitmq_server.new_host(), redis_server)
    fresh.drop()


@pytest.fixture(scope="module")
def module_counters(stack, module_serve):
    server = module_serve(stack.play("counters"))
    wait_until(lambda: stack.host.depth(READ_QUEUE) is not None, "the queues are declared")
    return server


@pytest.fixture
def server(module_counters):
    yield module_counters
    module_counters.check_alive()


@pytest.fixture
def counters(server, unread_client):
    return unread_client(server)


@pytest.fixture
def host(stack):
    return stack.host


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_event_is_counted_in_every_spelling(counters, host, spelling):
    user, spell = new_user(), SPELLINGS[spelling]
    host.publish(*[(NEW_KEY, spell(new_message(user, f"m{i}"), "NewMessageEvent")) for i in range(3)])
    counters.wait_count(user, 3)
    host.publish((READ_KEY, spell(message_read(user, "m1"), "MessageReadEvent")))
    counters.wait_count(user, 2)
    assert host.depth(f"{NEW_QUEUE}_error") in (None, 0)


POISON = f'quipu_inbox_poison_total{{inbox="{NEW_QUEUE}"}}'
BAD = {
    "no JSON": (b"{", "JSON"),
    "no object": (b"[1]", "JSON"),
    "not UTF-8": (b'{"recipientId":"\xff"}', "JSON"),
    "no user": ({"messageId": "m", "timestamp": "2026-01-01T00:00:00Z"}, "recipientId"),
    "user is a number": ({"recipientId": 5, "messageId": "m"}, "recipientId"),
    "user is too long": ({"recipientId": "x" * 129, "messageId": "m"}, "recipientId"),
    "no message id": ({"recipientId": "u", "timestamp": "2026-01-01T00:00:00Z"}, "messageId"),
    "no time": ({"recipientId": "u", "messageId": "m"}, "timestamp"),
    "another kind": (envelope(new_message("u", "m"), "MessageReadEvent"), "messageType"),
    "empty": (b"", "JSON"),
}


def taken_aside(host, queue, body):
    """What lies in the error queue: the message as it came, and why in headers as MassTransit writes them."""
    ((method, properties, found),) = host.take(f"{queue}_error")
    assert found == (body if isinstance(body, bytes) else json.dumps(body).encode())
    assert properties.headers["MT-Reason"] == "fault"
    assert properties.headers["MT-Fault-Message"]
    assert {name for name in properties.headers if name.startswith("MT-Fault-")} >= {
        "MT-Fault-Message", "MT-Fault-Timestamp", "MT-Fault-ExceptionType"
    }
    assert properties.delivery_mode == 2
    return properties.headers["MT-Fault-Message"]


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_used_goes_to_the_error_queue_and_the_queue_goes_on(counters, host, server, what):
    body, word = BAD[what]
    user, before = new_user(), server.metrics()[POISON]
    host.publish((NEW_KEY, new_message(user, "before")), (NEW_KEY, body), (NEW_KEY, new_message(user, "after")))
    counters.wait_count(user, 2)
    assert word in taken_aside(host, NEW_QUEUE, body)
    host.wait_empty()
    assert server.metrics()[POISON] == before + 1


def test_an_event_older_than_30_days_goes_to_the_error_queue(counters, host):
    """What was kept to know a repeated one by is gone."""
    user = new_user()
    old = now() - datetime.timedelta(days=30, minutes=5)
    body = new_message(user, "old", old)
    young = new_message(user, "young", now() - datetime.timedelta(days=29, hours=23))
    host.publish((NEW_KEY, body), (NEW_KEY, young))
    counters.wait_count(user, 1)
    assert "30 days" in taken_aside(host, NEW_QUEUE, body)
    body = message_read(user, "young", old)
    host.publish((READ_KEY, body))
    assert "30 days" in taken_aside(host, READ_QUEUE, body)
    assert counters.count(user) == 1


def test_what_the_store_refuses_goes_aside_alone_and_everybody_else_is_counted_and_cached(
    serve, unread_client, full_unread
):
    """The batch is halved until the bad one is found: each half is a commit, and what it changed reaches the cache."""
    host, users = full_unread.host, [new_user() for _ in range(7)]
    first = serve(full_unread.play("counters"))
    wait_until(lambda: host.depth(READ_QUEUE) is not None, "the queues are declared")
    host.publish(*[(NEW_KEY, new_message(user, "fine")) for user in users])
    for user in users:
        unread_client(first).wait_count(user, 1)
    first.stop()
    full_unread.database.query("ALTER TABLE counter_messages ADD CHECK (message_id <> 'refused')")
    bad = new_message(users[3], "refused")
    host.publish(*[(NEW_KEY, bad if user == users[3] else new_message(user, "more")) for user in users])
    counters = unread_client(serve(full_unread.play("counters")))
    assert "refuses" in taken_aside(host, NEW_QUEUE, bad)
    host.wait_empty()
    assert [counters.count(user) for user in users] == [1 if user == users[3] else 2 for user in users]


def random_events(dice, users, messages):
    """Events of messages of which some are read, repeated and in any order; and what must come out."""
    events, expected = [], dict.fromkeys(users, 0)
    for number in range(messages):
        user, message, is_read = dice.choice(users), f"message-{number}", dice.random() < 0.6
        events += [(NEW_KEY, new_message(user, message))] * dice.choice([1, 1, 2, 3])
        events += [(READ_KEY, message_read(user, message))] * (dice.choice([1, 1, 2, 3]) if is_read else 0)
        expected[user] += not is_read
    dice.shuffle(events)
    return events, expected


def nonzero(expected):
    """As the table of counters is looked at."""
    return {user: count for user, count in expected.items() if count}


def assert_counts(counters, expected):
    wait_until(lambda: {user: counters.count(user) for user in expected} == expected, "every count is right")


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_and_any_repetition_end_at_the_right_count(counters, host, stack, seed):
    dice = random.Random(seed)
    users = [new_user() for _ in range(5)]
    events, expected = random_events(dice, users, 120)
    host.publish(*events)
    assert_counts(counters, expected)
    host.publish(*dice.sample(events, len(events) // 2))
    host.wait_empty()
    assert_counts(counters, expected)
    counted = stack.counted()
    assert {user: counted[user] for user in users if user in counted} == nonzero(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_with_crashes_at_every_step_ends_at_the_right_count(serve, unread_client, full_unread, seed):
    """Each process dies at a point of its own; RabbitMQ gives again what was not acknowledged."""
    dice = random.Random(1000 + seed)
    host = full_unread.host
    users = [new_user() for _ in range(5)]
    events, expected = random_events(dice, users, 150)
    points = itertools.cycle(
        ["intake.applied=kill@2", "intake.committed=kill", "intake.committed=kill@2", "intake.applied=kill"]
    )
    server = serve(full_unread.play("counters"))
    wait_until(lambda: host.depth(READ_QUEUE) is not None, "the queues are declared")
    server.stop()
    for part in range(4):
        host.publish(*events[part::4])
        server = serve(full_unread.play("counters"), env={"QUIPU_FAILPOINTS": next(points)}, ready=False)
        host.publish(*dice.sample(events[part::4], 20))
        server.expect_to_be_killed()
    counters = unread_client(serve(full_unread.play("counters")))
    host.publish(*dice.sample(events, 50))
    assert_counts(counters, expected)
    host.wait_empty()
    assert_counts(counters, expected)
    assert full_unread.counted() == nonzero(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_processes_share_the_queues_in_any_order(serve, unread_client, full_unread, seed):
    host = full_unread.host
    both = [unread_client(serve(full_unread.play("counters"))) for _ in range(2)]
    wait_until(lambda: host.depth(READ_QUEUE) is not None, "the queues are declared")
    users = [new_user() for _ in range(3)]
    events, expected = random_events(random.Random(2000 + seed), users, 300)
    for part in range(6):
        host.publish(*events[part::6])
    for counters in both:
        assert_counts(counters, expected)
    host.wait_empty()
    assert full_unread.counted() == nonzero(expected)


def test_a_redelivery_that_changes_nothing_still_refreshes_the_cache(counters, host, stack):
    user = new_user()
    event = new_message(user, "m")
    host.publish((NEW_KEY, event))
    counters.wait_count(user, 1)
    old = '{"count":0,"version":0,"lastUpdated":"2026-01-08T07:10:00Z"}'  # as a crash before the cache leaves it
    stack.redis.do("SET", f"counter:{user}:UnreadMessages", old, "EX", 300)
    host.put_into(NEW_QUEUE, [event])
    wait_until(lambda: stack.cached(user)["count"] == 1, "the counter in the cache is refreshed")
    assert stack.cached(user)["version"] == 1

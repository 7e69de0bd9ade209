"""Events as others publish them: every spelling is counted, what cannot be used goes aside, order does not matter."""

import datetime
import itertools
import json
import random

import pytest

from harness.rabbitmq import NEW_KEY, NEW_QUEUE, READ_KEY, READ_QUEUE
from harness.unread import envelope, message_read, new_message, new_user, now, pascal
from harness.waiting import wait_until

SPELLINGS = {
    "bare camelCase": lambda message, kind: message,
    "bare PascalCase": lambda message, kind: pascal(message),
    "envelope camelCase": envelope,
    "envelope PascalCase": lambda message, kind: envelope(message, kind, pascal),
    "envelope without type": lambda message, kind: {"message": message},
}


# Tests that only publish share one server on PostgreSQL, RabbitMQ and Redis. Each has users of its own, and takes what it
# has put into an error queue.
SHARED = pytest.mark.parametrize("module_unread", ["postgres-rabbitmq-redis"], indirect=True)
ONE_SEED = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 4))]


@pytest.fixture
def stack(module_unread):
    wait_declared(module_unread[1].host)
    return module_unread[1]


@pytest.fixture
def host(stack):
    return stack.host


def wait_declared(host):
    wait_until(lambda: host.depth(READ_QUEUE) is not None, "the queues are declared")


def counted(stack, users):
    """As the table says, of those who have any."""
    return {user: count for user, count in stack.counted().items() if user in users}


@SHARED
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_event_is_counted_in_every_spelling(unread, host, spelling):
    user, spell = new_user(), SPELLINGS[spelling]
    host.publish(*[(NEW_KEY, spell(new_message(user, f"m{i}"), "NewMessageEvent")) for i in range(3)])
    unread.wait_count(user, 3)
    host.publish((READ_KEY, spell(message_read(user, "m1"), "MessageReadEvent")))
    unread.wait_count(user, 2)
    assert host.depth(f"{NEW_QUEUE}_error") in (None, 0)


GUID = "0192F0C1-2D3E-7ABC-8DEF-0123456789AB"
TICKS = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f7")  # a DateTime has seven digits
TOLERATED = {  # as services of .NET write them: the message, what is around it, the id that it has then
    "no time": ({"messageId": "m"}, None, "m"),
    "the envelope's time": ({"messageId": "m"}, {"sentTime": TICKS + "Z"}, "m"),
    "a time without an offset": ({"messageId": "m", "timestamp": TICKS}, None, "m"),
    "CreatedAt": ({"messageId": "m", "CreatedAt": TICKS[:19]}, None, "m"),
    "an integer": ({"messageId": 7}, None, "7"),
    "a Guid in upper case": ({"messageId": GUID}, None, GUID.lower()),
    "the envelope's id": ({}, {"messageId": GUID}, GUID.lower()),
}


@SHARED
@pytest.mark.parametrize("what", TOLERATED)
def test_an_event_is_counted_as_services_of_dotnet_write_it(unread, host, what):
    user, (message, around, message_id) = new_user(), TOLERATED[what]
    message = {"recipientId": user, "senderId": 2, **message}
    host.publish((NEW_KEY, message if around is None else {**around, "message": message}))
    unread.wait_count(user, 1)
    host.publish((READ_KEY, message_read(user, message_id)))
    unread.wait_count(user, 0)
    assert host.depth(f"{NEW_QUEUE}_error") in (None, 0)


def stored_time(stack, user):
    """Returns when the one message of a user happened, in seconds."""
    ((time,),) = stack.counters_query(
        f"SELECT extract(epoch FROM event_at)::float8 FROM counter_messages WHERE user_id = '{user}'")
    return time


@SHARED
def test_an_event_without_a_time_happened_when_the_broker_says_or_else_now(unread, host, stack):
    stamped, bare = new_user(), new_user()
    an_hour_ago = int(now().timestamp()) - 3600
    host.publish((NEW_KEY, {"recipientId": stamped, "messageId": "m"}), timestamp=an_hour_ago)
    unread.wait_count(stamped, 1)
    assert stored_time(stack, stamped) == an_hour_ago
    before = now().timestamp()
    host.publish((NEW_KEY, {"recipientId": bare, "messageId": "m"}))
    unread.wait_count(bare, 1)
    assert before - 1e-3 <= stored_time(stack, bare) <= now().timestamp() + 1e-3


@SHARED
def test_the_time_in_a_message_is_preferred_to_that_of_the_broker(unread, host, stack):
    user, yesterday = new_user(), now().replace(microsecond=0) - datetime.timedelta(days=1)
    message = new_message(user, "m", when=yesterday)
    host.publish((NEW_KEY, message), timestamp=int(now().timestamp()))
    unread.wait_count(user, 1)
    assert stored_time(stack, user) == yesterday.timestamp()


STRANGE = ["9" * 30, "-1e999", r'"\u0000"', '{"a":1,"a":2}', "[" * 100 + "]" * 100]


@SHARED
def test_members_that_nobody_reads_may_hold_anything(unread, host):
    user = new_user()
    for number, value in enumerate(STRANGE):
        text = json.dumps(new_message(user, f"strange-{number}"))
        host.publish((NEW_KEY, f'{{"x":{value},{text[1:-1]},"y":{value}}}'.encode()))
    unread.wait_count(user, len(STRANGE))
    assert host.depth(f"{NEW_QUEUE}_error") in (None, 0)


BAD = {
    "no JSON": (b"{", "JSON"),
    "no object": (b"[1]", "JSON"),
    "not UTF-8": (b'{"recipientId":"\xff"}', "JSON"),
    "no user": ({"messageId": "m", "timestamp": "2026-01-01T00:00:00Z"}, "recipientId"),
    "user is a fraction": ({"recipientId": 7.5, "messageId": "m"}, "recipientId"),
    "user is too long": ({"recipientId": "x" * 129, "messageId": "m"}, "recipientId"),
    "no message id": ({"recipientId": "u", "timestamp": "2026-01-01T00:00:00Z"}, "messageId"),
    "no time that can be read": ({"recipientId": "u", "messageId": "m", "timestamp": "yesterday"}, "timestamp"),
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


@SHARED
@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_used_goes_to_the_error_queue_and_the_queue_goes_on(unread, host, unread_server, what):
    def poisoned():
        return unread_server.metrics()[f'quipu_inbox_poison_total{{inbox="{NEW_QUEUE}"}}']

    body, word = BAD[what]
    user, before = new_user(), poisoned()
    host.publish((NEW_KEY, new_message(user, "before")), (NEW_KEY, body), (NEW_KEY, new_message(user, "after")))
    unread.wait_count(user, 2)
    assert word in taken_aside(host, NEW_QUEUE, body)
    host.wait_empty()
    wait_until(lambda: poisoned() == before + 1, "it is counted")


@SHARED
def test_an_event_older_than_30_days_goes_to_the_error_queue(unread, host):
    """What was kept to know a repeated one by is gone."""
    user = new_user()
    old = now() - datetime.timedelta(days=30, minutes=5)
    body = new_message(user, "old", old)
    young = new_message(user, "young", now() - datetime.timedelta(days=29, hours=23))
    host.publish((NEW_KEY, body), (NEW_KEY, young))
    unread.wait_count(user, 1)
    assert "30 days" in taken_aside(host, NEW_QUEUE, body)
    body = message_read(user, "young", old)
    host.publish((READ_KEY, body))
    assert "30 days" in taken_aside(host, READ_QUEUE, body)
    assert unread.count(user) == 1


def test_what_the_store_refuses_goes_aside_alone_and_everybody_else_is_counted_and_cached(
    serve, unread_client, full_unread
):
    """The batch is halved until the bad one is found: each half is a commit, and what it changed reaches the cache."""
    users, host = [new_user() for _ in range(7)], full_unread.host
    first = serve(full_unread.play("counters"))
    wait_declared(host)
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


def assert_counts(counters, expected):
    wait_until(lambda: {user: counters.count(user) for user in expected} == expected, "every count is right")


@SHARED
@pytest.mark.parametrize("seed", ONE_SEED)
def test_any_order_and_any_repetition_end_at_the_right_count(unread, host, stack, seed):
    dice = random.Random(seed)
    users = [new_user() for _ in range(5)]
    events, expected = random_events(dice, users, 120)
    host.publish(*events)
    assert_counts(unread, expected)
    host.publish(*dice.sample(events, len(events) // 2))
    host.wait_empty()
    assert_counts(unread, expected)
    assert counted(stack, users) == {user: count for user, count in expected.items() if count}


@pytest.mark.parametrize("seed", ONE_SEED[:2])
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
    wait_declared(host)
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
    assert full_unread.counted() == {user: count for user, count in expected.items() if count}


@pytest.mark.parametrize("seed", ONE_SEED[:2])
def test_two_processes_share_the_queues_in_any_order(serve, unread_client, full_unread, seed):
    host = full_unread.host
    both = [unread_client(serve(full_unread.play("counters"))) for _ in range(2)]
    wait_declared(host)
    users = [new_user() for _ in range(3)]
    events, expected = random_events(random.Random(2000 + seed), users, 150)
    for part in range(6):
        host.publish(*events[part::6])
    for counters in both:
        assert_counts(counters, expected)
    host.wait_empty()
    assert full_unread.counted() == {user: count for user, count in expected.items() if count}


@SHARED
def test_a_redelivery_that_changes_nothing_still_refreshes_the_cache(unread, host, stack):
    user = new_user()
    event = new_message(user, "m")
    host.publish((NEW_KEY, event))
    unread.wait_count(user, 1)
    old = '{"count":0,"version":0,"lastUpdated":"2026-01-08T07:10:00Z"}'  # as a crash before the cache leaves it
    stack.redis.do("SET", f"counter:{user}:UnreadMessages", old, "EX", 300)
    host.put_into(NEW_QUEUE, [event])
    wait_until(lambda: stack.cached(user)["count"] == 1, "the counter in the cache is refreshed")
    ((version,),) = stack.database.query("SELECT version FROM counters WHERE user_id = %s", (user,))
    assert stack.cached(user)["version"] == version

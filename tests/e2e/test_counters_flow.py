"""The three flows of the specification, step by step, seen from outside by pika and python3-redis."""

import json

import pytest

from harness.rabbitmq import EXCHANGE, MASSTRANSIT, NEW_KEY, NEW_QUEUE, READ_KEY, READ_QUEUE
from harness.unread import UUID7, counter_key, list_key, new_user
from harness.waiting import wait_until


@pytest.fixture
def dialogs(serve, unread_client, full_unread):
    return unread_client(serve(full_unread.play("dialogs")))


@pytest.fixture
def counters(serve, unread_client, full_unread):
    """Its cache is in use: a process is ready without it."""
    server = serve(full_unread.play("counters"))
    wait_until(lambda: b'"engine":"redis","status":"up"' in server.ask("GET", "/readyz").body, "Redis is in use")
    return unread_client(server)


def read_event(taken, key, kind):
    """The message in an envelope that lies on the bus as MassTransit would have put it there."""
    method, properties, body = taken
    assert (method.exchange, method.routing_key) == (EXCHANGE, key)
    assert properties.content_type == MASSTRANSIT and properties.delivery_mode == 2
    event = json.loads(body)
    assert event["messageType"] == [f"urn:message:Quipu.Dialogs:{kind}"]
    assert properties.message_id == event["messageId"] and event["headers"] == {}
    assert event["sentTime"].endswith("Z")
    return event["message"]


def test_flow_1_a_message_that_is_sent_becomes_an_event_and_is_counted(dialogs, counters, full_unread):
    alice, bob = new_user(), new_user()
    watcher = full_unread.host.watch()
    assert counters.counters(bob).json() == []
    sent = dialogs.send(alice, bob).json()

    (taken,) = full_unread.host.take(watcher)
    assert read_event(taken, NEW_KEY, "NewMessageEvent") == {
        "recipientId": bob, "messageId": sent["messageId"], "senderId": alice, "timestamp": sent["createdAt"]
    }
    assert UUID7.fullmatch(json.loads(taken[2])["messageId"])
    counters.wait_count(bob, 1)
    assert full_unread.counters_query(f"SELECT type, count FROM counters WHERE user_id = '{bob}'") == [
        ("UnreadMessages", 1)
    ]


def test_flow_1_the_list_in_the_cache_is_deleted_by_every_change(dialogs, counters, full_unread):
    bob, redis = new_user(), full_unread.redis
    messages = [dialogs.sent(new_user(), bob)]
    counters.wait_count(bob, 1)
    assert counters.counters(bob).json()[0]["count"] == 1
    assert redis.do("EXISTS", list_key(bob)) == 1
    messages.append(dialogs.sent(new_user(), bob))
    wait_until(lambda: redis.do("EXISTS", list_key(bob)) == 0, "a new message deletes the list")
    assert counters.counters(bob).json()[0]["count"] == 2
    assert 0 < redis.do("PTTL", list_key(bob)) <= 300_000
    dialogs.read(bob, messages[0])
    wait_until(lambda: redis.do("EXISTS", list_key(bob)) == 0, "a read message deletes the list")
    assert counters.counters(bob).json()[0]["count"] == 1


def test_flow_2_each_message_that_is_read_becomes_an_event_and_is_counted_off(dialogs, counters, full_unread):
    alice, bob = new_user(), new_user()
    messages = [dialogs.sent(alice, bob) for _ in range(3)]
    counters.wait_count(bob, 3)
    watcher = full_unread.host.watch()
    assert dialogs.read_batch(bob, messages[:2] + ["unknown"]).json()["updated"] == 2
    assert dialogs.read_batch(bob, messages[:2]).json()["updated"] == 0
    assert dialogs.read(bob, messages[0]).json()["updated"] == 0
    events = [read_event(taken, READ_KEY, "MessageReadEvent") for taken in full_unread.host.take(watcher, 2)]
    assert sorted(event["messageId"] for event in events) == sorted(messages[:2])
    assert all(event.keys() == {"userId", "messageId", "timestamp"} and event["userId"] == bob for event in events)
    counters.wait_count(bob, 1)
    dialogs.sent(alice, bob)  # what was read again made no event: the next one on the bus is this
    (taken,) = full_unread.host.take(watcher)
    read_event(taken, NEW_KEY, "NewMessageEvent")


def stored_version(stack, user):
    ((version,),) = stack.database.query("SELECT version FROM counters WHERE user_id = %s", (user,))
    return version


def test_flow_3_a_counter_comes_from_the_cache_else_from_the_store_and_is_then_cached(dialogs, counters, full_unread):
    bob, redis = new_user(), full_unread.redis
    dialogs.sent(new_user(), bob)
    counters.wait_count(bob, 1)

    def read_anew():
        """None while the change still refreshes: what a reader has read is not cached then."""
        redis.do("DEL", counter_key(bob))
        answer = counters.counter(bob).json()
        return answer if full_unread.cached(bob) else None

    first = wait_until(read_anew, "what is read is cached")
    cached = full_unread.cached(bob)
    assert cached.keys() == {"count", "version", "lastUpdated"}
    assert (cached["count"], cached["version"]) == (1, stored_version(full_unread, bob))
    assert 290_000 < redis.do("PTTL", counter_key(bob)) <= 300_000
    assert redis.do("EXISTS", f"{counter_key(bob)}:lease") == 0
    full_unread.database.query("UPDATE counters SET count = 77 WHERE user_id = %s", (bob,))
    assert counters.counter(bob).json() == first  # it did not ask the store
    redis.do("DEL", counter_key(bob))
    assert counters.count(bob) == 77


def test_flow_3_a_change_refreshes_the_counter_in_the_cache(dialogs, counters, full_unread):
    bob = new_user()
    dialogs.sent(new_user(), bob)
    # a reader puts it there, unless the change comes between its look and that; a change only refreshes it
    wait_until(lambda: counters.count(bob) == 1 and full_unread.cached(bob), "a reader has put it into the cache")
    first = stored_version(full_unread, bob)
    for number in (2, 3, 4):
        dialogs.sent(new_user(), bob)
        wait_until(lambda: (full_unread.cached(bob) or {}).get("count") == number, "the cache has the new count")
        assert full_unread.cached(bob)["version"] == first + number - 1
    assert full_unread.redis.do("PTTL", counter_key(bob)) > 290_000
    assert counters.count(bob) == 4


def test_exchange_and_queues_are_declared_by_either_service(dialogs, full_unread):
    """Without a counter process: what is sent meanwhile waits in the queues."""
    host = full_unread.host
    bob = new_user()
    dialogs.read(bob, dialogs.sent(new_user(), bob))
    wait_until(lambda: (host.depth(NEW_QUEUE), host.depth(READ_QUEUE)) == (1, 1), "both events wait in their queues")
    with host.channel() as channel:
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        channel.queue_declare(NEW_QUEUE, durable=True)
        channel.queue_declare(READ_QUEUE, durable=True)


def test_the_namespace_of_the_events_is_an_option(serve, unread_client, full_unread):
    dialogs = unread_client(serve(full_unread.play("dialogs"), "--masstransit-namespace", "Chat.Contracts"))
    dialogs.sent(new_user(), new_user())
    ((_, _, body),) = full_unread.host.take(NEW_QUEUE)
    assert json.loads(body)["messageType"] == ["urn:message:Chat.Contracts:NewMessageEvent"]

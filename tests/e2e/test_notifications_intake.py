"""From events to notifications: repeats, any order, two processes; one notification each."""

import random

import pytest

from harness import quipu
from harness.entitlements import PostgresBus, make_event, new_user
from harness.waiting import wait_until

GRANTED = "entitlements.events.granted"


def wait_waiting(nats, members=2):
    """Returns when that many wait for messages."""
    wait_until(lambda: (nats.consumer() or {"num_waiting": 0})["num_waiting"] >= members, f"{members} wait for messages")


@pytest.fixture
def takers(serve, tmp_path, database, nats):
    """Two processes that only take in and send; their stack."""
    stack = PostgresBus(tmp_path, database, nats, roles="notifications")
    servers = [serve(stack), serve(stack.beside())]
    wait_waiting(nats)
    return servers, stack


def put_all(nats, payloads):
    """Without Nats-Msg-Id, so that JetStream drops no repeat."""
    with nats.wire() as wire:
        for payload in payloads:
            assert wire.store(GRANTED, payload)


def wait_taken(servers, count):
    wait_until(
        lambda: sum(s.metric("quipu_inbox_taken_total") + s.metric("quipu_inbox_repeated_total") for s in servers) == count,
        f"{count} are taken in")


def test_the_same_event_a_hundred_times_is_one_notification(takers, nats, entitlements_client):
    servers, stack = takers
    user = new_user()
    put_all(nats, [make_event(user, event_id="the-one").SerializeToString()] * 100)
    wait_taken(servers, 100)
    assert sum(server.metric("quipu_inbox_repeated_total") for server in servers) == 99
    client = entitlements_client(servers[0])
    client.wait_sent(user)
    assert [n["event_id"] for n in client.inbox(user)] == ["the-one"]
    assert stack.count("notifications") == stack.count("processed_events") == 1


def test_events_in_any_order_and_repeated_are_one_notification_each(takers, nats, entitlements_client):
    servers, stack = takers
    users = [new_user() for _ in range(5)]
    events = [make_event(user, version=v).SerializeToString() for user in users for v in range(1, 9)]
    shuffled = events * 3
    random.Random(7).shuffle(shuffled)
    put_all(nats, shuffled)
    wait_taken(servers, len(shuffled))
    client = entitlements_client(servers[1])
    client.wait_sent(*users, count=8)
    for user in users:
        assert sorted(n["version"] for n in client.inbox(user)) == list(range(1, 9))
    assert stack.count("notifications") == stack.count("processed_events") == len(events)


def test_of_two_processes_one_is_killed_and_the_other_goes_on(serve, tmp_path, database, nats):
    stack = PostgresBus(tmp_path, database, nats, "?ack-wait=1s", "notifications")
    dying = serve(stack, env={"QUIPU_FAILPOINTS": "intake.applied=kill"})
    serve(stack.beside(), "--notify-lease", "2s", "--notify-timeout", "1s")
    wait_waiting(nats)
    events = [make_event(new_user()).SerializeToString() for _ in range(300)]
    put_all(nats, events * 2)

    def is_dead():
        put_all(nats, events[:1])  # until the dying one has got something
        return not dying.running

    wait_until(is_dead, "it has died")
    dying.expect_to_be_killed()
    wait_until(lambda: stack.count("notifications", "status <> 'PROCESSING'") == 300, "all are taken in")
    assert stack.count("processed_events") == 300
    wait_until(lambda: nats.consumer()["num_ack_pending"] == 0, "all are acknowledged")
    assert stack.count("notifications") == 300


def test_what_was_delivered_too_often_without_success_is_put_aside_and_can_be_replayed(
    serve, tmp_path, database, nats, binary, entitlements_client
):
    """A member of the group that takes and never acknowledges: here by hand, in real life one that always crashes."""
    stack, user = PostgresBus(tmp_path, database, nats, "?ack-wait=1s&max-deliver=2", "notifications"), new_user()
    server = serve(stack)
    wait_waiting(nats, 1)
    server.stop()
    wait_until(lambda: nats.consumer()["num_waiting"] == 0, "nobody waits any more")
    payload = make_event(user).SerializeToString()
    put_all(nats, [payload])
    with nats.wire() as wire:
        assert wire.pull().payload == payload
    server = serve(stack)
    wait_until(lambda: stack.count("notification_dlq"), "it is put aside")
    (letter,) = stack.rows("notification_dlq")
    assert bytes(letter["payload"]) == payload and "too many times" in letter["last_error"]
    assert stack.count("notifications") == 0
    done = quipu.run(binary, "dlq", "replay", f"poison/{letter['id']}", "--server", f"http://127.0.0.1:{server.port}")
    assert done.returncode == 0, done
    entitlements_client(server).wait_sent(user)


def test_the_trace_of_a_request_is_in_the_log_line_of_its_notification(serve, entitlements_client, entitlement_stack):
    server = serve(entitlement_stack)
    client, user = entitlements_client(server), new_user()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.grant(user, headers={"traceparent": trace})
    client.wait_sent(user)
    (line,) = [line for line in server.log_text().splitlines() if "notification sent" in line]
    assert trace in line and client.inbox(user)[0]["notification_id"] in line

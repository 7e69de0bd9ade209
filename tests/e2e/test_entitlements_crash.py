"""kill -9 between any two steps from the change to the sent notification, and a relay that wakes too late."""

import contextlib
import signal

import pytest

from harness.entitlements import GRANTS, change, event_class, new_user, request_bytes
from harness.http import Connection, ConnectionLost
from harness.waiting import wait_until

POINTS = ["relay.claimed", "relay.published", "relay.ended", "intake.applied", "intake.committed", "notify.claimed",
          "notify.sent", "notify.recorded"]
SHORT = ["--outbox-lease", "1s", "--notify-lease", "2s", "--notify-timeout", "1s"]  # of who is to lose its claims
LONG = ["--outbox-lease", "1h", "--notify-lease", "1h"]  # of who is to keep them, however slow the machine is
LATER = {"QUIPU_TEST_CLOCK_OFFSET": "2h"}  # the dead owner's leases are over
PASSES = {"relay.ended": 3}  # it is passed by every look at the outbox; by the third there may be something in it


def grant_until_killed(server):
    """Grants until the server is gone; returns the users whose grants were acknowledged."""
    granted = []
    with contextlib.suppress(ConnectionLost, ConnectionError, TimeoutError):
        with Connection(server.port) as connection:
            while True:
                user = new_user()
                connection.send(request_bytes(GRANTS, change(user)))
                assert connection.read_answer().status == 200
                granted.append(user)
    server.expect_to_be_killed()
    return granted


def grant_once(server):
    """One grant, whose answer may not come any more, and the end of the server."""
    with contextlib.suppress(ConnectionLost), Connection(server.port) as connection:
        connection.send(request_bytes(GRANTS, change(new_user())))
        connection.read_answer()
    server.expect_to_be_killed()


@pytest.mark.parametrize("point", POINTS)
def test_after_kill_9_every_event_is_delivered_and_recorded_once(serve, entitlements_client, entitlement_stack, point):
    if entitlement_stack.engine == "postgres":
        entitlement_stack.options = "?ack-wait=1s"
    crashed = serve(entitlement_stack, *LONG, env={"QUIPU_FAILPOINTS": f"{point}=kill@{PASSES.get(point, 1)}"})
    granted = grant_until_killed(crashed)
    client = entitlements_client(serve(entitlement_stack, *LONG, env=LATER))
    last = client.granted()
    count = entitlement_stack.count("entitlement_audit")
    assert count >= len(granted) + 1
    entitlement_stack.wait_all_sent(count)
    client.wait_sent(last, *granted[-3:])
    # the crash is seen in the rows it hit: they were claimed a second time
    retaken = {"relay.claimed": "outbox_events", "relay.published": "outbox_events",
               "notify.claimed": "notifications", "notify.sent": "notifications"}.get(point)
    if retaken:
        assert entitlement_stack.count(retaken, "claim_epoch = 2") >= 1
    for table in ("outbox_events", "notifications"):
        assert entitlement_stack.count(table, "attempt_count > 0 OR claim_epoch > 2") == 0
    if entitlement_stack.engine == "postgres":
        ids = {row["event_id"] for row in entitlement_stack.rows("outbox_events", "event_id")}
        assert {message.id for message in entitlement_stack.bus.messages()} == ids


def test_a_dead_relays_events_are_left_alone_until_its_lease_is_over_and_then_taken(
    serve, entitlements_client, nats_stack
):
    crashed = serve(nats_stack, *SHORT, env={"QUIPU_FAILPOINTS": "relay.claimed=kill"})
    grant_once(crashed)
    (row,) = nats_stack.rows("outbox_events", "*, lease_until - locked_at AS lease", "status = 'IN_FLIGHT'")
    assert (row["claim_epoch"], row["lease"].total_seconds()) == (1, 1.0)
    other = serve(nats_stack.beside(), *LONG, "--outbox-poll", "20ms")
    nats_stack.wait_published()
    (after,) = nats_stack.rows("outbox_events", where=f"event_id = '{row['event_id']}'")
    assert after["claim_epoch"] == 2 and after["locked_by"] != row["locked_by"]
    assert after["locked_at"] >= row["lease_until"]
    wait_until(lambda: other.metric("quipu_outbox_published_total") >= 1, "it is counted")


@pytest.mark.parametrize("point", ["relay.claimed", "relay.published"])
def test_a_relay_that_is_paused_past_its_lease_changes_nothing_when_it_wakes(
    serve, entitlements_client, nats_stack, nats, point
):
    sleeper = serve(nats_stack.beside("entitlements"), *SHORT, env={"QUIPU_FAILPOINTS": f"{point}=stop"})
    with Connection(sleeper.port) as connection:
        connection.send(request_bytes(GRANTS, change(new_user())))
        wait_until(sleeper.stopped, "the relay is paused")
        other = serve(nats_stack, *LONG, "--outbox-poll", "20ms")
        nats_stack.wait_all_sent(1)
        (left,) = nats_stack.rows("outbox_events")
        assert left["claim_epoch"] == 2
        with nats.tapped() as tap:
            sleeper.signal(signal.SIGCONT)
            connection.read_answer()
            wait_until(lambda: sleeper.metric("quipu_outbox_lost_claims_total") == 1, "it sees that it has lost")
            assert tap.take_all() == [], "it publishes nothing"
    assert nats_stack.rows("outbox_events") == [left]
    other.stop()  # which might take further claims from a sleeper that is slow
    entitlements_client(sleeper).granted()
    nats_stack.wait_published()
    assert sleeper.metric("quipu_outbox_lost_claims_total") == 1


def test_a_worker_that_is_paused_past_its_lease_changes_nothing_when_it_wakes(serve, entitlements_client, nats_stack):
    nats_stack.options = "?ack-wait=1s"
    sleeper = serve(nats_stack, *SHORT, env={"QUIPU_FAILPOINTS": "notify.sent=stop"})
    with Connection(sleeper.port) as connection:
        connection.send(request_bytes(GRANTS, change(new_user())))
        wait_until(sleeper.stopped, "the worker is paused")
        serve(nats_stack.beside(), *LONG, "--outbox-poll", "20ms")
        nats_stack.wait_all_sent(1)
        (left,) = nats_stack.rows("notifications")
        assert left["claim_epoch"] == 2
        sleeper.signal(signal.SIGCONT)
        connection.read_answer()
    user = entitlements_client(sleeper).granted()
    entitlements_client(sleeper).wait_sent(user)
    assert nats_stack.rows("notifications", where=f"notification_id = '{left['notification_id']}'") == [left]


def test_kill_9_under_load_loses_nothing_and_repeats_no_notification(serve, entitlements_client, entitlement_stack):
    if entitlement_stack.engine == "postgres":
        entitlement_stack.options = "?ack-wait=1s"
    server = serve(entitlement_stack, *LONG, env={"QUIPU_FAILPOINTS": "relay.published=kill@25"})
    granted = grant_until_killed(server)
    client = entitlements_client(serve(entitlement_stack, *LONG, env=LATER))
    count = entitlement_stack.count("entitlement_audit")
    assert len(granted) <= count <= len(granted) + 1
    entitlement_stack.wait_all_sent(count)
    client.wait_sent(*granted[-3:])


def test_the_payload_that_is_published_after_a_crash_is_the_one_of_the_change(serve, nats_stack, nats):
    crashed = serve(nats_stack, *LONG, env={"QUIPU_FAILPOINTS": "relay.claimed=kill"})
    grant_once(crashed)
    serve(nats_stack, *LONG, env=LATER)
    nats_stack.wait_published()
    (row,) = nats_stack.rows("outbox_events")
    (message,) = nats.messages()
    assert message.payload == bytes(row["payload"])
    event = event_class().FromString(message.payload)
    assert (event.event_id, event.version) == (row["event_id"], 1)

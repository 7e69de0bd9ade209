"""Notifications by webhook: what is sent, what is tried again, what is given up, and who holds up whom."""

import json
import signal
import time
import uuid

import pytest

from harness import quipu
from harness.entitlements import GRANTS, change, new_user, request_bytes
from harness.http import Connection
from harness.waiting import wait_until
from harness.webhook import Webhook

RETRIED = [500, 503, 429, 408, 425, 301, 307, 302, "close"]
PATIENT = ["--notify-timeout", "20m", "--notify-lease", "1h"]
FINAL = [400, 401, 403, 404, 409, 410, 422]


@pytest.fixture(scope="module")
def receiver():
    with Webhook() as running:
        yield running


@pytest.fixture(scope="module")
def webhook_module(module_serve, module_nats_stack, receiver):
    """One server for the tests that wait for no timeout: however slow the receiver is, it is heard out."""
    yield module_serve(
        module_nats_stack, "--notify-channel", receiver.channel, *PATIENT, "--outbox-poll", "20ms"), module_nats_stack
    receiver.ended.set()


@pytest.fixture
def stack(webhook_module):
    return webhook_module[1]


@pytest.fixture
def client(webhook_module, entitlements_client):
    return entitlements_client(webhook_module[0])


def wait_row(stack, user, what, condition):
    return wait_until(
        lambda: [r for r in stack.rows(
            "notifications", "*, extract(epoch FROM next_retry_at - quipu_now())::float8 AS wait_s",
            f"user_id = '{user}'") if condition(r)], what)[0]


def make_due(stack, user, attempts=None):
    """Once it waits: a try may be under way."""
    wait_until(lambda: stack.database.query(
        "UPDATE notifications SET next_retry_at = quipu_now(), attempt_count = coalesce(%s, attempt_count) "
        "WHERE user_id = %s AND status = 'PENDING' RETURNING 1", (attempts, user)), "it waits for its next try")


def wait_failed(stack, user, attempts):
    """The row when at least that many tries have failed and the next is waited for."""
    return wait_row(stack, user, f"try {attempts} has failed",
                    lambda r: r["attempt_count"] >= attempts and r["status"] == "PENDING")


def check_retries(client, stack, receiver, user):
    """Fails twice, each time with the same key, and is sent once the receiver is well again."""
    row = wait_failed(stack, user, 1)
    assert (row["lease_until"], row["sent_at"]) == (None, None)
    assert row["last_error"] and row["wait_s"] <= 1.5 * 2 ** (row["attempt_count"] - 1)
    make_due(stack, user)
    wait_failed(stack, user, 2)
    receiver.of_user[user] = 200
    make_due(stack, user)
    client.wait_sent(user)
    received = receiver.of(user)
    assert len(received) >= 3 and all(body == received[0][0] for body, _ in received)
    assert len({headers["Idempotency-Key"] for _, headers in received}) == 1
    assert client.inbox(user)[0]["attempt_count"] >= 2
    assert stack.count("notification_dlq", f"aggregate_key = '{user}:item1'") == 0


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_what_is_posted_and_any_2xx_is_sent(client, receiver, status):
    user = new_user()
    receiver.of_user[user] = status
    granted = client.grant(user, purchase="p_456").json()
    client.wait_sent(user)
    ((body, headers),) = receiver.of(user)
    shown = client.inbox(user)[0]
    assert body == {
        "notification_id": shown["notification_id"], "event_id": shown["event_id"],
        "event_type": "EntitlementGranted", "occurred_at": granted["updated_at"], "user_id": user,
        "stock_keeping_unit": "item1", "source": "purchase", "source_id": "p_456", "version": 1}
    assert uuid.UUID(body["notification_id"])
    assert headers["Idempotency-Key"].strip('"') == body["notification_id"]
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("behaviour", RETRIED)
def test_what_may_pass_is_tried_again_with_the_same_key(client, stack, receiver, behaviour):
    user = new_user()
    receiver.of_user[user] = behaviour
    client.grant(user)
    check_retries(client, stack, receiver, user)


@pytest.mark.parametrize("status", FINAL)
def test_what_is_refused_is_given_up_at_once_and_lies_in_the_dlq(client, stack, receiver, status):
    user = new_user()
    receiver.of_user[user] = status
    client.grant(user)
    row = wait_row(stack, user, "it is given up", lambda r: r["status"] == "FAILED")
    assert row["attempt_count"] == 1 and str(status) in row["last_error"]
    (letter,) = stack.rows("notification_dlq", where=f"aggregate_key = '{user}:item1'")
    assert (letter["id"], letter["kind"], letter["event_type"]) == (
        row["notification_id"], "notification", "EntitlementGranted")
    assert bytes(letter["payload"]) == bytes(row["payload"]) and str(status) in letter["last_error"]
    assert len(receiver.of(user)) == 1


def test_the_tenth_failure_is_the_last(client, stack, receiver):
    user = new_user()
    receiver.of_user[user] = 500
    client.grant(user)
    wait_failed(stack, user, 1)
    start = time.monotonic()
    make_due(stack, user, attempts=8)
    row = wait_failed(stack, user, 9)
    assert row["attempt_count"] == 9 and row["wait_s"] <= 90
    assert row["wait_s"] + time.monotonic() - start >= 29, "half a minute, from the moment it failed"
    make_due(stack, user)
    row = wait_row(stack, user, "it is given up", lambda r: r["status"] == "FAILED")
    assert row["attempt_count"] == 10
    assert stack.count("notification_dlq", f"id = '{row['notification_id']}'") == 1


@pytest.mark.parametrize("status", [429, 503])
def test_the_next_try_waits_as_long_as_the_receiver_asks(client, stack, receiver, status):
    user, begun = new_user(), time.monotonic()
    receiver.of_user[user] = (status, "3600")
    client.grant(user)
    row = wait_failed(stack, user, 1)
    assert row["wait_s"] <= 3600 <= row["wait_s"] + time.monotonic() - begun
    assert len(receiver.of(user)) == row["attempt_count"] == 1


def test_redirects_are_not_followed(client, stack, receiver):
    user = new_user()
    receiver.of_user[user] = 302
    client.grant(user)
    wait_failed(stack, user, 1)
    receiver.of_user[user] = 200
    make_due(stack, user)
    client.wait_sent(user)
    failures = client.inbox(user)[0]["attempt_count"]
    assert len(receiver.of(user)) == failures + 1, "the other place was not asked"


def test_one_that_hangs_is_tried_again_with_the_same_key(serve, nats_stack, entitlements_client):
    with Webhook() as receiver:
        client = entitlements_client(serve(
            nats_stack, "--notify-channel", receiver.channel, "--notify-timeout", "300ms", "--outbox-poll", "20ms"))
        user = new_user()
        receiver.of_user[user] = "hang"
        client.grant(user)
        check_retries(client, nats_stack, receiver, user)


def test_one_that_hangs_does_not_hold_up_the_others(serve, nats_stack, entitlements_client):
    """Nothing ends the wait for those that hang before the others are sent."""
    with Webhook() as receiver:
        client = entitlements_client(serve(
            nats_stack, "--notify-channel", receiver.channel, *PATIENT, "--outbox-poll", "20ms"))
        check_others(client, nats_stack, receiver)


def check_others(client, stack, receiver):
    hanging = [new_user() for _ in range(30)]
    receiver.of_user.update({user: "hang" for user in hanging})
    for user in hanging:
        client.grant(user)
    wait_until(lambda: all(receiver.of(user) for user in hanging), "all of them hang")
    good = client.granted(20)
    wait_until(lambda: all(receiver.of(user) for user in good), "the others are sent")
    client.wait_sent(*good)
    receiver.of_user.clear()
    receiver.ended.set()
    for user in hanging:
        wait_row(stack, user, "the hanging one is let go", lambda r: r["attempt_count"] >= 1)
    stack.make_due("notifications")
    client.wait_sent(*hanging)


def test_the_receiver_never_sees_two_notifications_of_one_event(receiver):
    """The last of the file: over everything that came."""
    by_event = {}
    for body, _ in receiver.received:
        by_event.setdefault(body["event_id"], set()).add(json.dumps(body))
    assert by_event and all(len(bodies) == 1 for bodies in by_event.values())


def test_sigterm_while_one_hangs_returns_it_and_nothing_is_lost(
    serve, entitlements_client, nats_stack
):
    with Webhook() as receiver:
        receiver.behaviour = "hang"
        options = ["--notify-channel", receiver.channel, *PATIENT]
        server = serve(nats_stack, *options)
        client = entitlements_client(server)
        user = client.granted()
        wait_until(lambda: receiver.of(user), "it hangs")
        server.stop()
        (row,) = nats_stack.rows("notifications")
        assert (row["status"], row["attempt_count"], row["lease_until"]) == ("PENDING", 0, None)
        receiver.behaviour = 200
        entitlements_client(serve(nats_stack, *options)).wait_sent(user)
        assert len({headers["Idempotency-Key"] for _, headers in receiver.of(user)}) == 1


def test_a_receiver_that_is_away_costs_no_attempts_and_everything_is_sent_once_it_is_back(
        serve, nats_stack, entitlements_client, free_port):
    def total(column):
        return nats_stack.database.query(f"SELECT coalesce(sum({column}), 0) FROM notifications")[0][0]

    server = serve(nats_stack, "--notify-channel", f"webhook:http://127.0.0.1:{free_port}/hook", "--outbox-poll", "20ms")
    client = entitlements_client(server)
    users = client.granted(12)
    wait_until(lambda: "the receiver cannot be reached" in server.log_text(), "the breaker is open")
    wait_until(lambda: nats_stack.count("notifications") == 12 and nats_stack.count(
        "notifications", "status = 'PROCESSING'") == 0, "nothing is under way")
    spent, probes = total("attempt_count"), total("claim_epoch")
    wait_until(lambda: total("claim_epoch") >= probes + 3, "it was probed three times")
    assert total("attempt_count") == spent
    with Webhook(free_port) as receiver:
        for user in users:
            client.wait_sent(user)
            assert len(receiver.of(user)) == 1
    assert nats_stack.count("notification_dlq") == 0
    wait_until(lambda: "the receiver can be reached again" in server.log_text(), "the log says so")


NO_URLS = {"webhook:": "it must begin with http:// or https://", "webhook:ftp://host/": "it must begin with http:// or https://",
           "webhook:host": "it must begin with http:// or https://", "webhook:http://": "there must be a host",
           "webhook:https:///path": "there must be a host", "webhook:http://host:port/": "Port number"}


@pytest.mark.parametrize("option, other", [("--notify-channel", "log"), ("--sms-channel", "console")])
def test_a_webhook_that_is_no_url_is_refused_before_anything_is_opened(binary, tmp_path, option, other):
    told = {**{channel: f"{option}: the URL of the webhook cannot be used: {why}" for channel, why in NO_URLS.items()},
            "mail": f"{option} must be {other} or webhook:URL", "": f"{option} must be {other} or webhook:URL"}
    for channel, why in told.items():
        for arguments in (["--check-config"], ["--data", tmp_path / "data"]):
            done = quipu.run(binary, "serve", "--roles", "all", option, channel, *arguments, cwd=tmp_path)
            assert done.returncode == 2 and why in done.stderr, (channel, done)
    assert list(tmp_path.iterdir()) == []
    done = quipu.run(binary, "serve", "--check-config", "--roles", "all", option, "webhook:https://host:8443/hook", cwd=tmp_path)
    assert done.returncode == 0, done


def test_a_refusal_heard_after_another_worker_has_sent_it_is_no_dead_letter(serve, nats_stack):
    with Webhook() as receiver:
        options = ["--notify-channel", receiver.channel, "--outbox-poll", "20ms"]
        sleeper = serve(nats_stack, *options, env={"QUIPU_FAILPOINTS": "notify.sent=stop"})
        receiver.behaviour = 400
        with Connection(sleeper.port) as connection:
            connection.send(request_bytes(GRANTS, change(new_user())))
            wait_until(sleeper.stopped, "the worker has heard the refusal and not recorded it")
            receiver.behaviour = 200
            serve(nats_stack.beside(), *options, env={"QUIPU_TEST_CLOCK_OFFSET": "1h"})  # all leases are over
            nats_stack.wait_all_sent(1)
            sleeper.signal(signal.SIGCONT)
            connection.read_answer()
        sleeper.stop()
        assert nats_stack.rows("notifications", "status, claim_epoch") == [{"status": "SENT", "claim_epoch": 2}]
        assert nats_stack.rows("notification_dlq") == []

"""GET /api/messages/{messageId}: what became of a message, from its send to its end and until it is forgotten."""

import base64
import json
import uuid

import pytest

from harness.gateway_stacks import LONG_LEASE
from harness.keys import KeyFile
from harness.problems import assert_bad_request, assert_problem
from harness.quipu import run
from harness.verify import verified
from harness.waiting import wait_until
from harness.webhook import Webhook

OPTIONS = (*LONG_LEASE, "--outbox-poll", "20ms")
on_both_stores = pytest.mark.parametrize("stack", ["sqlite-memory", "postgres-none"], indirect=True)


@pytest.fixture
def provider():
    with Webhook(user="userId") as running:
        yield running


def message(gateway, answer):
    """What became of the message of this answer."""
    assert answer.status == 200 and answer.header("location") == f"/api/messages/{answer.json()['messageId']}"
    found = gateway.ask("GET", answer.header("location"))
    assert found.status == 200, found
    return found.json()


def wait_for_state(gateway, answer, state):
    wait_until(lambda: message(gateway, answer)["state"] == state, f"it is {state}")
    return message(gateway, answer)


@on_both_stores
def test_a_message_is_sent_and_says_when(serve, gateway_client, stack):
    server = serve(stack)
    gateway = gateway_client(server)
    answer = gateway.send(gateway.new_user(), key=str(uuid.uuid4()))
    got = wait_for_state(gateway, answer, "SENT")
    assert got["messageId"] == answer.json()["messageId"] and got["userId"] == answer.json()["userId"]
    assert (got["attempts"], got["lastError"]) == (1, None)
    assert got["createdAt"] <= got["sentAt"]


def test_a_repeated_send_leads_to_the_same_message(gateway):
    user, key = gateway.new_user(), str(uuid.uuid4())
    first, again = gateway.send(user, "hello", key=key), gateway.send(user, "hello", key=key)
    assert again.header("idempotent-replayed") == "true"
    assert first.header("location") == again.header("location") is not None


def test_a_refused_send_leads_nowhere(gateway):
    user = gateway.new_user(1)
    gateway.send(user)
    refused = gateway.send(user)
    assert (refused.status, refused.header("location")) == (429, None)


@on_both_stores
def test_a_message_that_waits_on_the_bus_is_queued(serve, gateway_client, stack):
    server = serve(stack, env={"QUIPU_FAILPOINTS": "intake.fetch=off"})
    gateway = gateway_client(server)
    user = gateway.new_user()
    answer = gateway.send(user)
    got = message(gateway, answer)
    assert (got["state"], got["userId"], got["attempts"], got["sentAt"], got["lastError"]) == ("QUEUED", user, 0, None, None)
    server.stop()
    gateway = gateway_client(serve(stack))
    sent = wait_for_state(gateway, answer, "SENT")
    assert sent["createdAt"] == got["createdAt"]


@on_both_stores
def test_the_attempts_of_a_message_are_told(serve, gateway_client, stack, provider):
    server = serve(stack, *OPTIONS, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user = gateway.new_user()
    provider.of_user[user] = 500
    answer = gateway.send(user)
    (got,) = wait_until(lambda: [got for got in [message(gateway, answer)] if got["lastError"]], "an attempt has failed")
    assert got["state"] == "QUEUED" and got["attempts"] >= 1 and "500" in got["lastError"] and got["sentAt"] is None
    provider.of_user[user] = 200
    sent = wait_for_state(gateway, answer, "SENT")
    assert sent["attempts"] == len(provider.of(user)) > got["attempts"] and sent["lastError"] is None


@on_both_stores
def test_a_message_that_is_on_its_way_is_sending(serve, gateway_client, stack, provider):
    server = serve(stack, *LONG_LEASE, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user = gateway.new_user()
    provider.of_user[user] = "hang"
    answer = gateway.send(user)
    wait_until(lambda: provider.of(user), "it is on its way")
    assert message(gateway, answer)["state"] == "SENDING"
    provider.ended.set()


@on_both_stores
def test_a_message_that_is_given_up_says_why_and_can_be_replayed_or_discarded(
        binary, serve, gateway_client, stack, provider):
    server = serve(stack, *OPTIONS, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user = gateway.new_user()
    provider.of_user[user] = 422
    answers = [gateway.send(user), gateway.send(user)]
    letters = [f"sms/{answer.json()['messageId']}" for answer in answers]
    for answer in answers:
        got = wait_for_state(gateway, answer, "FAILED")
        assert got["attempts"] == 1 and "422" in got["lastError"]
    provider.of_user[user] = 200
    address = ("--server", f"http://127.0.0.1:{server.port}")
    assert run(binary, "dlq", "replay", letters[0], *address).returncode == 0
    assert run(binary, "dlq", "discard", letters[1], "--why", "a wrong number", *address).returncode == 0
    wait_for_state(gateway, answers[0], "SENT")
    assert message(gateway, answers[1])["state"] == "DISCARDED"
    assert verified(binary, server, "limits")[0] == set()


@on_both_stores
def test_the_dead_letter_of_a_message_shows_what_was_to_be_sent(binary, serve, gateway_client, stack, provider):
    server = serve(stack, *OPTIONS, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user, text = gateway.new_user(), 'say "hello" to {them}'
    provider.of_user[user] = 422
    answer = gateway.send(user, text)
    wait_for_state(gateway, answer, "FAILED")
    name = f"sms/{answer.json()['messageId']}"
    letter = json.loads(gateway.ask("GET", f"/operator/dlq/{name}").body)
    assert (letter["kind"], letter["attempt_count"], letter["aggregate_key"]) == ("sms", 1, user) and "422" in letter["error"]
    assert letter["event"] == json.loads(base64.b64decode(letter["payload"])) == provider.of(user)[0][0]
    assert letter["event"]["message"] == text
    shown = run(binary, "dlq", "show", name, "--server", f"http://127.0.0.1:{server.port}")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == letter


def test_ids_that_were_never_given_out_are_not_found(gateway):
    for name in (str(uuid.uuid4()), "m-1", "x" * 128, "0"):
        assert_problem(gateway.ask("GET", f"/api/messages/{name}"), 404, "MESSAGE_NOT_FOUND")
    assert_bad_request(gateway.ask("GET", f"/api/messages/{'x' * 129}"), "messageId")


def test_an_id_is_found_in_either_case(gateway):
    answer = gateway.send(gateway.new_user())
    found = gateway.ask("GET", f"/api/messages/{answer.json()['messageId'].upper()}")
    assert found.status == 200 and found.json()["messageId"] == answer.json()["messageId"]


@on_both_stores
def test_a_message_is_forgotten_30_days_after_its_end(serve, gateway_client, stack):
    server = serve(stack)
    gateway = gateway_client(server)
    answer = gateway.send(gateway.new_user())
    wait_for_state(gateway, answer, "SENT")
    server.stop()
    for days in (29, 31):
        server = serve(stack, env={"QUIPU_TEST_CLOCK_OFFSET": f"{days}d"})
        gateway = gateway_client(server)
        if days == 29:
            assert message(gateway, answer)["state"] == "SENT"
            server.stop()
    wait_until(lambda: gateway.ask("GET", answer.header("location")).status == 404, "it is swept at the start")


@on_both_stores
def test_what_nobody_takes_is_forgotten_after_30_days(serve, gateway_client, stack):
    held = {"QUIPU_FAILPOINTS": "intake.fetch=off"}
    server = serve(stack, env=held)
    gateway = gateway_client(server)
    answer = gateway.send(gateway.new_user())
    assert message(gateway, answer)["state"] == "QUEUED"
    server.stop()
    gateway = gateway_client(serve(stack, env={**held, "QUIPU_TEST_CLOCK_OFFSET": "31d"}))
    wait_until(lambda: gateway.ask("GET", answer.header("location")).status == 404, "it is swept at the start")


@on_both_stores
def test_a_key_for_sending_is_enough(binary, serve, stack, tmp_path):
    keys = KeyFile(binary, tmp_path / "keys")
    external, other = keys.new("client", "external:gateway"), keys.new("other", "external:counts")
    server = serve(stack, "--api-keys", keys.path)
    path = f"/api/messages/{uuid.uuid4()}"
    assert server.ask("GET", path, headers=external.headers).status == 404
    assert server.ask("GET", path, headers=other.headers).status == 403
    assert server.ask("GET", path).status == 401

"""The sender behind a webhook: what a provider gets, what is tried again, and what is given up."""

import collections
import json
import time

import pytest

from harness.gateway import new_text, new_user
from harness.gateway_stacks import AFTER_THE_LONG_LEASE, LONG_LEASE, PostgresStack, SHORT_LEASE, SqliteStack
from harness.http import ConnectionLost
from harness.quipu import run
from harness.waiting import wait_until
from harness.webhook import Webhook

SHORT = (*SHORT_LEASE, "--outbox-poll", "20ms")
LONG = (*LONG_LEASE, "--outbox-poll", "20ms")  # where a provider must not get a message again because it was slow
on_both_stores = pytest.mark.parametrize("stack", ["sqlite-memory", "postgres-none"], indirect=True)


@pytest.fixture
def provider():
    with Webhook(user="userId") as running:
        yield running


def texts(provider, user):
    return [body["message"] for body, _ in provider.of(user)]


@on_both_stores
def test_a_message_is_posted_once_under_its_own_id(serve, gateway_client, stack, provider):
    server = serve(stack, *LONG, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user, text = gateway.new_user(), new_text()
    sent = gateway.send(user, text).json()
    wait_until(lambda: stack.recorded() == 1, "it is recorded")
    ((body, headers),) = provider.of(user)
    assert body.keys() == {"messageId", "userId", "message", "createdAt"}
    assert (body["message"], body["messageId"]) == (text, sent["messageId"])
    assert headers["Idempotency-Key"] == headers["webhook-id"] == sent["messageId"]


@on_both_stores
def test_messages_of_a_user_wait_for_a_provider_that_is_away_and_no_attempt_counts(
        serve, gateway_client, stack, free_port):
    def total(column):
        return stack.outbound(f"coalesce(sum({column}), 0)")[0][0]

    server = serve(stack, *SHORT, "--sms-channel", f"webhook:http://127.0.0.1:{free_port}/hook")
    gateway = gateway_client(server)
    user = gateway.new_user(100)
    wanted = [new_text() for _ in range(12)]
    for text in wanted:
        assert gateway.send(user, text).status == 200
    wait_until(lambda: "the receiver cannot be reached" in server.log_text(), "the breaker is open")
    wait_until(lambda: stack.outbound("status") == [("PENDING",)] * 12, "nothing is under way")
    spent, probes = total("attempt_count"), total("claim_epoch")
    wait_until(lambda: total("claim_epoch") >= probes + 3, "it was probed three times")
    assert total("attempt_count") == spent
    with Webhook(free_port, user="userId") as provider:
        wait_until(lambda: stack.recorded() == 12, "all are sent")
        assert sorted(texts(provider, user)) == sorted(wanted)


@on_both_stores
@pytest.mark.parametrize("status", [429, 503])
def test_the_next_try_waits_as_long_as_the_provider_asks(serve, gateway_client, stack, provider, status):
    server = serve(stack, *SHORT, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user, begun = gateway.new_user(), time.time()
    provider.of_user[user] = (status, "3600")
    gateway.send(user)
    wait_until(lambda: stack.outbound("status, attempt_count") == [("PENDING", 1)], "a try has failed")
    ((next_try,),) = stack.outbound(stack.next_try_s)
    assert begun + 3600 <= next_try <= time.time() + 3600
    assert len(provider.of(user)) == 1


@on_both_stores
def test_what_the_provider_refuses_is_a_dead_letter_that_can_be_replayed(serve, gateway_client, stack, provider, binary):
    server = serve(stack, *SHORT, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user = gateway.new_user()
    provider.of_user[user] = 422
    message_id = gateway.send(user).json()["messageId"]
    address = ("--server", f"http://127.0.0.1:{server.port}")
    wait_until(lambda: message_id in run(binary, "dlq", "list", *address).stdout, "it is given up")
    provider.of_user[user] = 200
    done = run(binary, "dlq", "replay", f"sms/{message_id}", *address)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: stack.recorded() == 1, "it is sent")
    assert len({headers["webhook-id"] for _, headers in provider.of(user)}) == 1


@on_both_stores
@pytest.mark.parametrize("point", ["notify.claimed", "notify.sent", "notify.recorded"])
def test_after_kill_9_a_message_is_sent_under_the_same_id(serve, gateway_client, stack, provider, point):
    crashed = serve(stack, *LONG, "--sms-channel", provider.channel, env={"QUIPU_FAILPOINTS": f"{point}=kill"})
    gateway = gateway_client(crashed)
    user = gateway.new_user()
    try:
        gateway.send(user)
    except ConnectionLost:
        pass
    crashed.expect_to_be_killed()
    serve(stack, *LONG, "--sms-channel", provider.channel, env=AFTER_THE_LONG_LEASE)
    wait_until(lambda: stack.recorded() == 1, "it is sent")
    assert len(provider.of(user)) == (2 if point == "notify.sent" else 1)
    assert len({headers["webhook-id"] for _, headers in provider.of(user)}) == 1


@on_both_stores
def test_a_provider_that_answers_too_late_gets_the_message_again_under_the_same_id(serve, gateway_client, stack, provider):
    server = serve(stack, *SHORT, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user = gateway.new_user()
    provider.of_user[user] = "hang"
    location = gateway.send(user).header("location")
    wait_until(lambda: gateway.ask("GET", location).json()["lastError"] == "no answer within 1 s", "the time is over")
    provider.of_user[user] = 200
    wait_until(lambda: stack.recorded() == 1, "it is sent")
    assert len(provider.of(user)) > 1
    assert len({headers["webhook-id"] for _, headers in provider.of(user)}) == 1


@pytest.mark.parametrize("stack", ["postgres-none"], indirect=True)
def test_two_senders_share_the_messages_and_send_each_once(serve, gateway_client, stack, provider):
    options = (*LONG, "--sms-channel", provider.channel)
    first, second = serve(stack, *options), serve(stack.beside(), *options)
    user = gateway_client(first).new_user(200)
    for number in range(100):
        gateway_client((first, second)[number % 2]).send(user)
    wait_until(lambda: stack.recorded() == 100, "all are sent")
    ids = [headers["webhook-id"] for _, headers in provider.of(user)]
    assert len(ids) == len(set(ids)) == 100


def test_a_store_that_goes_away_delays_messages_and_loses_none(serve, gateway_client, own_postgres, tmp_path, provider):
    stack = PostgresStack(tmp_path, "none", own_postgres.create_database())
    server = serve(stack, *SHORT, "--sms-channel", provider.channel)
    gateway = gateway_client(server)
    user = gateway.new_user(100)
    provider.of_user[user] = 500
    for _ in range(10):
        assert gateway.send(user).status == 200
    wait_until(lambda: len({headers["webhook-id"] for _, headers in provider.of(user)}) == 10, "each was tried")
    own_postgres.stop()
    wait_until(lambda: server.ask("GET", "/readyz").status == 503, "the store is down")
    provider.of_user[user] = 200
    own_postgres.start()
    wait_until(lambda: stack.recorded() == 10, "all are sent")
    assert len({headers["webhook-id"] for _, headers in provider.of(user)}) == 10


def test_one_that_hangs_delays_only_itself(serve, gateway_client, tmp_path, provider):
    stack = SqliteStack(tmp_path, "none")
    server = serve(stack, *LONG, "--sms-channel", provider.channel, "--sms-parallel", "2")
    gateway = gateway_client(server)
    slow, user = gateway.new_user(), gateway.new_user(100)
    provider.of_user[slow] = "hang"
    gateway.send(slow)
    wait_until(lambda: provider.of(slow), "one hangs")
    for _ in range(20):
        gateway.send(user)
    wait_until(lambda: stack.recorded() == 20, "the others are sent")
    provider.ended.set()


@on_both_stores
def test_a_provider_that_hangs_holds_no_more_messages_than_may_be_under_way(serve, stack, provider):
    """The ten come in one batch, so one claim could take them all."""
    user, options = new_user(), ["--notify-timeout", "20m", "--notify-lease", "1h", "--sms-channel", provider.channel]
    serve(stack, *options).stop()
    stack.put_into_queue([json.dumps({"userId": user, "message": new_text()}).encode() for _ in range(10)])
    provider.of_user[user] = "hang"
    serve(stack, *options, "--sms-parallel", "2")
    wait_until(lambda: len(provider.of(user)) >= 2 and len(stack.outbound("id")) == 10, "two hang, and all are taken")
    assert collections.Counter(stack.outbound("status")) == {("SENDING",): 2, ("PENDING",): 8}
    assert len(provider.of(user)) == 2
    provider.of_user[user] = 200
    provider.ended.set()
    wait_until(lambda: stack.recorded() == 10, "all are sent")
    assert len({body["message"] for body, _ in provider.of(user)}) == 10


def test_a_channel_that_is_none_is_refused_at_the_start(binary, tmp_path):
    done = run(binary, "serve", "--check-config", "--sms-channel", "mail", cwd=tmp_path)
    assert done.returncode != 0 and "--sms-channel must be console or webhook:URL" in done.stderr

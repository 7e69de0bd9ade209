"""Idempotency-Key on /api/send: one message, one slot, one answer, whatever crashes in between."""

import pytest

from harness.counts import new_key
from harness.gateway import new_text, new_user, send_request, texts_sent
from harness.gateway_stacks import on_each_engine
from harness.http import ConnectionLost, ask_all
from harness.problems import assert_bad_request, assert_problem
from harness.waiting import wait_until


# a pending key belongs to the process that died until its lease of 5 s is over: the next one starts later than that
AFTER_THE_LEASE = {"QUIPU_TEST_CLOCK_OFFSET": "6s"}


def assert_replay(first, second):
    assert first.header("idempotent-replayed") is None, first
    assert second.header("idempotent-replayed") == "true", second
    assert (second.status, second.body) == (first.status, first.body)
    assert second.header("content-type") == first.header("content-type")


def wait_sent(gateway, *servers):
    """Returns when everything that was queued before is printed by the last server: the queue keeps its order."""
    marker = new_text()
    assert gateway.send(gateway.new_user(1), marker).status == 200
    wait_until(lambda: marker in texts_sent(servers[-1]), "a message that was queued last is printed")
    return texts_sent(*servers)


def test_a_repeated_send_is_replayed_byte_for_byte_and_sent_once(gateway, gateway_server, gateway_stack):
    user, text, key = gateway.new_user(5), new_text(), new_key()
    first = gateway.send(user, text, key=key)
    assert first.status == 200
    gateway.send(user)
    for _ in range(3):
        assert_replay(first, gateway.send(user, text, key=key))
    assert gateway_stack.count(user) == 2
    assert wait_sent(gateway, gateway_server).count(text) == 1


def test_a_repeated_send_is_replayed_even_when_the_limit_is_used_up(gateway):
    user, text, key = gateway.new_user(2), new_text(), new_key()
    first = gateway.send(user, text, key=key)
    gateway.use_up(user)
    assert_replay(first, gateway.send(user, text, key=key))


def test_a_bare_and_a_quoted_key_are_one_key(gateway):
    user, text, key = gateway.new_user(2), new_text(), new_key()
    assert_replay(gateway.send(user, text, key=key), gateway.send(user, text, key=f'"{key}"'))


def test_other_keys_are_other_messages(gateway):
    user, text = gateway.new_user(3), new_text()
    ids = [gateway.send(user, text, key=new_key()).json()["messageId"] for _ in range(3)]
    assert len(set(ids)) == 3
    assert gateway.send(user, text, key=new_key()).status == 429


@pytest.mark.parametrize("other", ["message", "user"])
def test_the_same_key_with_another_request_is_a_conflict_and_costs_nothing(gateway, other):
    user, text, key = gateway.new_user(2), new_text(), new_key()
    first = gateway.send(user, text, key=key)
    changed = (gateway.new_user(2), text) if other == "user" else (user, new_text())
    assert_problem(gateway.send(*changed, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert gateway.count(user) == 1
    assert_replay(first, gateway.send(user, text, key=key))


def test_a_429_is_not_stored(gateway):
    user, text, key = gateway.new_user(1), new_text(), new_key()
    gateway.use_up(user)
    for _ in range(2):
        answer = gateway.send(user, text, key=key)
        assert_problem(answer, 429, "RATE_LIMIT_EXCEEDED")
        assert answer.header("idempotent-replayed") is None
    gateway.configure(user, 1)
    answer = gateway.send(user, text, key=key)
    assert (answer.status, answer.header("idempotent-replayed")) == (200, None)


def test_a_404_is_stored(gateway):
    user, text, key = new_user(), new_text(), new_key()
    first = gateway.send(user, text, key=key)
    assert_problem(first, 404, "CONFIG_NOT_FOUND")
    gateway.configure(user, 1)
    assert_replay(first, gateway.send(user, text, key=key))
    assert gateway.send(user, text).status == 200


def test_a_400_is_not_stored(gateway):
    user, key = gateway.new_user(1), new_key()
    assert_bad_request(gateway.send(user, " ", key=key), "message")
    assert gateway.send(user, "Hello!", key=key).status == 200


def test_a_key_of_config_is_no_key_of_send(gateway):
    user, key = new_user(), new_key()
    assert gateway.configure(user, 1, key=key).status == 200
    assert gateway.send(user, key=key).status == 200


def assert_sent_once(answers, stack, user):
    assert {answer.status for answer in answers} == {200}, answers
    assert len({answer.body for answer in answers}) == 1, answers
    row = stack.row(user)
    assert (row["current_count"], row["reserved_count"]) == (1, 1)


def test_one_key_at_one_moment_is_one_message(gateway, gateway_server, gateway_stack):
    user, text, key = gateway.new_user(10), new_text(), new_key()
    answers = ask_all([(gateway_server.port, send_request(user, text, key))] * 20)
    assert_sent_once(answers, gateway_stack, user)
    assert sum(answer.header("idempotent-replayed") is None for answer in answers) == 1
    assert wait_sent(gateway, gateway_server).count(text) == 1


def test_one_key_at_one_moment_on_two_processes_takes_one_slot_and_gives_one_answer(
    serve, gateway_client, postgres_stack
):
    servers = [serve(postgres_stack), serve(postgres_stack.beside())]
    gateway = gateway_client(servers[0])
    for _ in range(15):
        user, text, key = gateway.new_user(10), new_text(), new_key()
        answers = ask_all([(server.port, send_request(user, text, key)) for server in servers * 2])
        assert_sent_once(answers, postgres_stack, user)


@on_each_engine
@pytest.mark.parametrize("point", ["commit.before", "commit.after", "gateway.reserved", "gateway.published"])
def test_a_keyed_send_that_is_retried_after_a_crash_is_one_message_one_answer_one_line(
    serve, gateway_client, stack, point
):
    server = serve(stack)
    user, text, key = gateway_client(server).new_user(2), new_text(), new_key()
    server.stop()
    crashed = serve(stack, env={"QUIPU_FAILPOINTS": f"{point}=kill"})
    with pytest.raises(ConnectionLost):
        gateway_client(crashed).send(user, text, key=key)
    crashed.expect_to_be_killed()
    server = serve(stack, env=AFTER_THE_LEASE)
    gateway = gateway_client(server)
    answers = [gateway.send(user, text, key=key) for _ in range(3)]
    assert_sent_once(answers, stack, user)
    assert_replay(answers[0], answers[1])
    assert answers[0].json()["remaining"] == 1
    lines = wait_sent(gateway, crashed, server).count(text)
    was_printed = text in texts_sent(crashed)  # then it may not have been recorded any more
    assert lines == 1 or (lines == 2 and was_printed)
    assert len(gateway.use_up(user)) == 1


@on_each_engine
def test_a_key_that_was_pending_conflicts_with_another_request(serve, gateway_client, stack):
    server = serve(stack)
    user, text, key = gateway_client(server).new_user(2), new_text(), new_key()
    server.stop()
    crashed = serve(stack, env={"QUIPU_FAILPOINTS": "gateway.reserved=kill"})
    with pytest.raises(ConnectionLost):
        gateway_client(crashed).send(user, text, key=key)
    crashed.expect_to_be_killed()
    gateway = gateway_client(serve(stack, env=AFTER_THE_LEASE))
    assert_problem(gateway.send(user, new_text(), key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert gateway.send(user, text, key=key).status == 200


def test_a_pending_send_of_an_elapsed_window_takes_a_slot_of_the_next(serve, gateway_client, postgres_stack):
    """Its first slot belonged to the window in which it was admitted, and went with it."""
    server = serve(postgres_stack)
    user, text, key = new_user(), new_text(), new_key()
    gateway_client(server).configure(user, 2, 60)
    server.stop()
    crashed = serve(postgres_stack, env={"QUIPU_FAILPOINTS": "gateway.reserved=kill"})
    with pytest.raises(ConnectionLost):
        gateway_client(crashed).send(user, text, key=key)
    crashed.expect_to_be_killed()
    gateway = gateway_client(serve(postgres_stack, env={"QUIPU_TEST_CLOCK_OFFSET": "61m"}))
    assert gateway.send(user).status == 200
    assert gateway.send(user, text, key=key).status == 200
    row = postgres_stack.row(user)
    assert (row["current_count"], row["reserved_count"]) == (2, 2)
    assert gateway.send(user).status == 429


def test_a_retry_at_once_on_another_process_is_answered_when_the_dead_owner_s_lease_is_over(
    serve, gateway_client, postgres_stack
):
    """Without a shifted clock: a client that retries as 503 tells it to gets its answer, and the other user waits for
    nobody."""
    other = serve(postgres_stack)
    gateway = gateway_client(other)
    user, neighbour, text, key = gateway.new_user(2), gateway.new_user(1), new_text(), new_key()
    crashed = serve(postgres_stack.beside(), env={"QUIPU_FAILPOINTS": "gateway.reserved=kill"})
    with pytest.raises(ConnectionLost):
        gateway_client(crashed).send(user, text, key=key)
    crashed.expect_to_be_killed()
    with other.connect() as waiting:
        waiting.send(send_request(user, text, key))
        assert gateway.send(neighbour).status == 200
        answer = waiting.read_answer()
        if answer.status == 503:  # its deadline came before the lease ended
            assert_problem(answer, 503, "OUTCOME_UNKNOWN")
            answer = gateway.send(user, text, key=key)
    assert_sent_once([answer, gateway.send(user, text, key=key)], postgres_stack, user)

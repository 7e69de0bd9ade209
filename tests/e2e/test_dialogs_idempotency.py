"""Idempotency-Key on dialogs: one message, one event, one answer, whatever crashes."""

import pytest

from harness.counts import new_key
from harness.http import ConnectionLost
from harness.problems import assert_problem
from harness.unread import new_user


def assert_replay(first, second):
    assert first.header("idempotent-replayed") is None, first
    assert second.header("idempotent-replayed") == "true", second
    assert (second.status, second.body) == (first.status, first.body)


def test_a_repeated_send_is_one_message(unread):
    alice, bob, key = new_user(), new_user(), new_key()
    first = unread.send(alice, bob, key=key)
    assert first.status == 200
    for _ in range(3):
        assert_replay(first, unread.send(alice, bob, key=key))
    assert len(unread.list(alice, bob).json()) == 1
    unread.sent(alice, bob)
    unread.wait_count(bob, 2)


def test_a_repeated_read_answers_as_the_first(unread):
    bob, keys = new_user(), [new_key(), new_key()]
    messages = [unread.sent(new_user(), bob) for _ in range(3)]
    first = unread.read(bob, messages[0], key=keys[0])
    assert first.json()["updated"] == 1
    assert_replay(first, unread.read(bob, messages[0], key=keys[0]))
    first = unread.read_batch(bob, messages, key=keys[1])
    assert first.json()["updated"] == 2
    assert_replay(first, unread.read_batch(bob, messages, key=keys[1]))
    unread.wait_count(bob, 0)


def test_a_message_that_was_not_found_is_remembered_too(unread):
    user, key = new_user(), new_key()
    first = unread.read(user, "unknown", key=key)
    assert_problem(first, 404, "MESSAGE_NOT_FOUND")
    assert_replay(first, unread.read(user, "unknown", key=key))


def test_a_key_is_for_one_request(unread):
    alice, bob, key = new_user(), new_user(), new_key()
    assert unread.send(alice, bob, "one", key=key).status == 200
    for answer in (unread.send(alice, bob, "two", key=key), unread.send(alice, alice, "one", key=key)):
        assert answer.status == 409, answer
    assert len(unread.list(alice, bob).json()) == 1


def test_a_key_of_one_user_says_nothing_to_another(unread):
    """The same body under the same key, and another who asks: never the first one's answer."""
    alice, bob, eve, key = new_user(), new_user(), new_user(), new_key()
    first = unread.send(alice, bob, key=key)
    second = unread.send(eve, bob, key=key)
    assert second.status in (200, 409) and second.header("idempotent-replayed") is None, second
    assert second.body != first.body
    first = unread.read_batch(bob, [first.json()["messageId"]], key=key)
    second = unread.read_batch(eve, [unread.list(alice, bob).json()[0]["id"]], key=key)
    assert first.json()["updated"] == 1
    assert second.status == 409 or second.json()["updated"] == 0, second


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_send_cut_off_by_a_crash_is_one_message_after_its_retry(serve, unread_client, unread_stack, point):
    alice, bob, key = new_user(), new_user(), new_key()
    server = serve(unread_stack, env={"QUIPU_FAILPOINTS": f"{point}=kill"})
    with pytest.raises(ConnectionLost):
        unread_client(server).send(alice, bob, key=key)
    server.expect_to_be_killed()
    unread = unread_client(serve(unread_stack))
    answer = unread.send(alice, bob, key=key)
    assert answer.status == 200
    assert (answer.header("idempotent-replayed") == "true") == (point == "commit.after")
    assert len(unread.list(alice, bob).json()) == 1
    unread.wait_count(bob, 1)
    unread_stack.wait_agreement()

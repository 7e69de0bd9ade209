"""Every route of counters, every answer."""

import datetime

import pytest

from harness.problems import assert_bad_request, assert_problem
from harness.unread import new_user


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
def test_somebody_whom_nobody_knows_has_no_unread_messages(unread, prefix):
    user = new_user()
    assert unread.counter(user, prefix).json() == {
        "userId": user, "type": "UnreadMessages", "count": 0, "lastUpdated": None
    }
    assert unread.counters(user, prefix).json() == []


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
def test_a_counter_and_the_list_say_the_same(unread, prefix):
    alice, bob = new_user(), new_user()
    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
    for expected in (1, 2, 3):
        unread.sent(alice, bob)
        unread.wait_count(bob, expected)
        counter = unread.counter(bob, prefix).json()
        assert counter["count"] == expected and counter["type"] == "UnreadMessages"
        assert unread.counters(bob, prefix).json() == [counter]
    assert datetime.datetime.fromisoformat(counter["lastUpdated"].replace("Z", "+00:00")) > before
    assert unread.count(alice) == 0


def test_a_list_that_was_read_before_follows_every_change(unread):
    """Its entry in the cache is deleted, so that it is read from the store again."""
    bob = new_user()
    messages = []
    for expected in (1, 2):
        messages.append(unread.sent(new_user(), bob))
        unread.wait_count(bob, expected)
        for _ in range(2):
            assert [entry["count"] for entry in unread.counters(bob).json()] == [expected]
    unread.read_batch(bob, messages)
    unread.wait_count(bob, 0)
    assert [entry["count"] for entry in unread.counters(bob).json()] == [0]


def test_ids_are_escaped_in_paths_and_told_as_they_are(unread):
    user = f"{new_user()} ?&%ü\"\\"
    unread.sent(new_user(), user)
    unread.wait_count(user, 1)
    assert unread.counter(user).json()["userId"] == user
    with unread.follow(user) as stream:
        assert stream.next()[1]["userId"] == user


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
@pytest.mark.parametrize("user", ["x" * 129, "%01", "%FF"], ids=["overlong", "control", "not UTF-8"])
@pytest.mark.parametrize("rest", ["", "/UnreadMessages", "/stream"])
def test_a_user_that_is_no_id_is_refused(unread, prefix, user, rest):
    assert_bad_request(unread.ask("GET", f"{prefix}/counters/user/{user}{rest}"))


@pytest.mark.parametrize("target", ["/counters/user/x/Likes", "/api/v1/counters/user/x/Likes", "/counters", "/counters/user"])
def test_another_type_is_not_found(unread, target):
    assert_problem(unread.ask("GET", target), 404, "ROUTE_NOT_FOUND")


def test_counters_are_only_read(unread):
    for target in ("/counters/user/x", "/counters/user/x/UnreadMessages", "/counters/user/x/stream"):
        assert_problem(unread.ask("POST", target, {}), 405, "METHOD_NOT_ALLOWED")
        assert unread.ask("HEAD", target).status == 200

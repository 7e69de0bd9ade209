"""Listing and deleting limits: GET /api/config and DELETE /api/config/{userId}, on every stack."""

import re
from urllib.parse import quote

import pytest

from harness.counts import new_key
from harness.gateway import CONFIG, new_user
from harness.http import ask_at_once, render
from harness.problems import assert_bad_request, assert_problem


def pages(gateway, target):
    """Follows the links from `target` to the last page."""
    while target:
        answer = gateway.ask("GET", target)
        assert answer.status == 200, answer
        yield answer.json()
        found = re.fullmatch(r'<(.*)>; rel="next"', answer.header("link") or "")
        target = found and found.group(1)


def listed(gateway, limit=1000):
    return [limit for page in pages(gateway, f"{CONFIG}?limit={limit}") for limit in page]


def test_the_list_tells_every_limit_and_what_is_used_of_it(gateway):
    users = [gateway.new_user(3) for _ in range(3)]
    gateway.send(users[1])
    gateway.send(users[1])
    found = {limit["userId"]: limit for limit in listed(gateway)}
    assert [found[user]["currentCount"] for user in users] == [0, 2, 0]
    assert found[users[0]] == gateway.look(users[0]).json()


def test_pages_are_in_the_order_of_ids_and_show_everybody_once(gateway):
    users = {gateway.new_user() for _ in range(6)} | {new_user() + 'é "%&'}
    for user in users:
        gateway.configure(user)
    small = [[limit["userId"] for limit in page] for page in pages(gateway, f"{CONFIG}?limit=2")]
    ids = [user for page in small for user in page]
    assert all(len(page) == 2 for page in small[:-1]) and small[-1]
    assert ids == sorted(ids, key=str.encode) and len(ids) == len(set(ids))
    assert users <= set(ids)
    assert ids == [limit["userId"] for limit in listed(gateway)]


def test_a_page_is_bounded(gateway):
    for limit in ("0", "1001", "-1", "x", ""):
        assert_bad_request(gateway.ask("GET", f"{CONFIG}?limit={limit}"), "limit")
    assert_bad_request(gateway.ask("GET", f"{CONFIG}?after={'x' * 129}"), "after")
    last = max((limit["userId"] for limit in listed(gateway)), key=str.encode, default="")
    answer = gateway.ask("GET", f"{CONFIG}?after={quote(last)}~")
    assert (answer.json(), answer.header("link")) == ([], None)


def test_a_deleted_limit_is_gone(gateway, gateway_stack):
    user = gateway.new_user(2)
    assert gateway.send(user).status == 200
    answer = gateway.remove(user)
    assert (answer.status, answer.body) == (204, b"")
    assert gateway_stack.row(user) is None
    assert_problem(gateway.look(user), 404, "CONFIG_NOT_FOUND")
    assert_problem(gateway.send(user), 404, "CONFIG_NOT_FOUND")
    assert_problem(gateway.remove(user), 404, "CONFIG_NOT_FOUND")
    assert user not in {limit["userId"] for limit in listed(gateway)}


def test_deleting_drops_the_cached_copy(gateway):
    """A copy that was used up would go on refusing with 429."""
    user = gateway.new_user(1)
    gateway.use_up(user)
    assert gateway.send(user).status == 429
    assert gateway.remove(user).status == 204
    assert_problem(gateway.send(user), 404, "CONFIG_NOT_FOUND")
    gateway.configure(user, 2)
    assert len(gateway.use_up(user)) == 2


def test_a_repeated_deletion_is_replayed_and_deletes_nothing_else(gateway):
    user, key = gateway.new_user(), new_key()
    assert gateway.remove(user, key=key).status == 204
    gateway.configure(user, 4)
    again = gateway.remove(user, key=key)
    assert (again.status, again.header("idempotent-replayed")) == (204, "true")
    assert gateway.look(user).json()["rateLimit"] == 4


@pytest.mark.parametrize("path", ["x" * 129, "a%0Ab"])
def test_an_id_that_cannot_be_one_is_a_400(gateway, path):
    assert_bad_request(gateway.ask("DELETE", f"{CONFIG}/{path}"), "userId")


def test_exactly_one_of_many_deletions_at_one_moment_finds_the_limit(gateway, gateway_server):
    user = gateway.new_user()
    answers = ask_at_once(gateway_server, [render("DELETE", f"{CONFIG}/{user}") for _ in range(8)])
    assert sorted(answer.status for answer in answers) == [204] + [404] * 7


def test_windows_before_and_after_a_deletion_have_different_starts(gateway):
    """A start names a window: messages under one never exceed its limit."""
    user, starts = new_user(), set()
    for _ in range(5):
        starts.add(gateway.configure(user, 1).json()["lastRefreshTime"])
        assert gateway.remove(user).status == 204
    assert len(starts) == 5

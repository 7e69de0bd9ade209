"""GET /operator/actions: what operators did, once each, newest first, with the key that did it."""

import re

import pytest

from harness.http2 import Http2
from harness.keys import KeyFile
from harness.problems import assert_bad_request, assert_problem
from harness.routes import list_routes, names
from harness.unread import new_user

ALL = ("--roles", "all")


class Operator:
    """A client that acts under one API key."""

    def __init__(self, server, key=None):
        self._server = server
        self._headers = key.headers if key else {}

    def ask(self, method, target, body=None):
        return self._server.ask(method, target, body, headers=self._headers)

    def resend(self, kind):
        answer = self.ask("POST", f"/operator/{kind}/resend", {"since": "2026-01-08T07:10:00Z"})
        assert answer.status == 200, answer

    def actions(self, query=""):
        answer = self.ask("GET", f"/operator/actions{query}")
        assert answer.status == 200, answer
        return answer

    def all_actions(self, limit):
        """Page by page."""
        found, query = [], f"?limit={limit}"
        while query:
            answer = self.actions(query)
            assert len(answer.json()["actions"]) <= limit
            found += answer.json()["actions"]
            link = re.search(r"<[^?>]*([?][^>]*)>; rel=.next", answer.header("link") or "")
            query = link and link.group(1)
        return found


@pytest.fixture
def keys(binary, tmp_path):
    return KeyFile(binary, tmp_path / "keys")


@pytest.fixture
def operator(serve, store, keys):
    key = keys.new("night-shift", "admin")
    return Operator(serve(store, *ALL, "--api-keys", keys.path), key)


def test_every_server_that_records_actions_lists_them(binary, tmp_path):
    for role, option, bus in (("entitlements", "--entitlements-bus", "nats://host"),
                              ("notifications", "--entitlements-bus", "nats://host"),
                              ("dialogs", "--unread-bus", "amqp://host"),
                              ("sender", "--gateway-bus", "kafka://host")):
        routes = names(list_routes(binary, "--roles", role, option, bus, cwd=tmp_path))
        assert {"POST /operator/dlq/{kind}/{id}/replay", "GET /operator/actions"} <= routes, role


def test_actions_are_listed_over_http2_too(serve, sqlite_store):
    """All services are asked in turn for what may be a large answer, while no other large answer is looked up."""
    server = serve(sqlite_store, *ALL)
    operator = Operator(server)
    operator.resend("outbox")
    with Http2(server.port) as connection:
        streams = [connection.request("GET", "/operator/actions") for _ in range(3)]
        answers = [connection.answer(stream) for stream in streams]
    assert [answer.status for answer in answers] == [200] * 3
    assert {answer.body for answer in answers} == {operator.actions().body}


def test_actions_of_all_services_are_listed_once_and_newest_first(operator):
    for kind in ("outbox", "dialog-outbox", "outbox"):
        operator.resend(kind)
    actions = operator.actions().json()["actions"]
    assert [(action["who"], action["action"], action["target"]) for action in actions] == [
        ("night-shift", "resend", "outbox_events"),
        ("night-shift", "resend", "dialog_outbox_events"),
        ("night-shift", "resend", "outbox_events"),
    ]
    assert all("published since 2026-01-08" in action["detail"] for action in actions)
    assert [action["at"] for action in actions] == sorted((action["at"] for action in actions), reverse=True)


def test_pages_together_are_the_whole_list(operator):
    for round_ in range(5):
        operator.resend("outbox" if round_ % 2 else "dialog-outbox")
    whole = operator.actions().json()["actions"]
    assert len(whole) == 5
    for limit in (1, 2, 5):
        assert operator.all_actions(limit) == whole


def test_an_erasure_names_the_key_and_not_the_person(operator):
    person = new_user()
    answer = operator.ask("POST", "/api/config", {"userId": person, "rateLimit": 5, "timeWindow": 1})
    assert answer.status == 200, answer
    assert operator.ask("POST", "/operator/erase/gateway", {"userId": person}).status == 200
    (action,) = operator.actions().json()["actions"]
    assert (action["who"], action["action"]) == ("night-shift", "erase")
    assert action["target"].startswith("erased-") and person not in str(action)


def test_without_keys_nobody_is_named(serve, store):
    operator = Operator(serve(store, *ALL))
    operator.resend("outbox")
    (action,) = operator.actions().json()["actions"]
    assert action["who"] is None


def test_a_cursor_that_no_page_gave_is_refused(operator):
    for cursor in ("x", "1", "-", "1-", "-1", "1-2-3", "1-x", "99999999999999999999-1"):
        assert_bad_request(operator.ask("GET", f"/operator/actions?after={cursor}"), "after")


def test_a_key_of_another_scope_learns_nothing(serve, store, keys):
    shop = keys.new("shop", "internal")
    operator = Operator(serve(store, *ALL, "--api-keys", keys.path), shop)
    assert_problem(operator.ask("GET", "/operator/actions"), 403, "FORBIDDEN")

"""Every route of entitlements and notifications with every answer, on both stacks, as the seed and the contract say."""

import re
from urllib.parse import quote

import pytest

from harness.counts import new_key
from harness.entitlements import FIELDS, GRANTS, REVOKES, change, new_user
from harness.problems import assert_bad_request, assert_problem

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
CHANGES = [GRANTS, REVOKES]


def without_time(body):
    assert TIME.fullmatch(body.pop("updated_at")), body
    return body


# ---- the seed's examples


def test_the_seeds_grant(entitlements):
    answer = entitlements.ask("POST", GRANTS, key="p_456", body={
        "user_id": "u_123", "stock_keeping_unit": "item1", "reason": "purchase", "purchase_id": "p_456"})
    assert answer.status == 200
    assert list(answer.json()) == ["user_id", "stock_keeping_unit", "status", "version", "updated_at"]
    assert without_time(answer.json()) == {
        "user_id": "u_123", "stock_keeping_unit": "item1", "status": "ACTIVE", "version": 1}


def test_the_seeds_list(entitlements):
    answer = entitlements.list("u_123")
    assert answer.status == 200
    assert list(answer.json()) == ["user_id", "entitlements"]
    (entry,) = answer.json()["entitlements"]
    assert list(entry) == ["stock_keeping_unit", "status", "version", "updated_at"]
    assert without_time(entry) == {"stock_keeping_unit": "item1", "status": "ACTIVE", "version": 1}


def test_the_seeds_revoke_with_the_purchase_as_key_again(entitlements):
    answer = entitlements.ask("POST", REVOKES, key="p_456", body={
        "user_id": "u_123", "stock_keeping_unit": "item1", "reason": "refund", "purchase_id": "p_456"})
    assert (answer.status, answer.header("idempotent-replayed")) == (200, None)
    assert without_time(answer.json()) == {
        "user_id": "u_123", "stock_keeping_unit": "item1", "status": "REVOKED", "version": 2}


def test_the_seeds_debug_inbox_has_a_notification_of_each_change_newest_first(entitlements):
    user = new_user()
    entitlements.grant(user)
    entitlements.wait_sent(user)
    entitlements.revoke(user)
    entitlements.wait_sent(user, count=2)
    newest, oldest = entitlements.inbox(user)
    assert list(newest) == ["notification_id", "event_id", "event_type", "stock_keeping_unit", "version", "status",
                            "attempt_count", "occurred_at", "created_at", "sent_at"]
    assert (oldest["event_type"], oldest["version"]) == ("EntitlementGranted", 1)
    assert (newest["event_type"], newest["version"]) == ("EntitlementRevoked", 2)
    assert newest["notification_id"] != oldest["notification_id"] and newest["event_id"] != oldest["event_id"]
    for entry in (newest, oldest):
        assert (entry["stock_keeping_unit"], entry["attempt_count"]) == ("item1", 0)
        assert all(TIME.fullmatch(entry[name]) for name in ("occurred_at", "created_at", "sent_at"))


# ---- changes


def test_versions_grow_by_one_with_every_turn_and_by_none_with_a_refused_change(entitlements):
    user = new_user()
    for version in range(1, 8, 2):
        purchase = f"p_{version}"
        assert entitlements.grant(user, purchase=purchase).json()["version"] == version
        assert entitlements.grant(user, purchase=purchase).status == 409
        assert entitlements.revoke(user, purchase=purchase).json()["version"] == version + 1
        assert entitlements.revoke(user, purchase=purchase).status == 409


def test_a_second_grant_of_a_purchase_is_a_409_with_the_entitlement_as_it_is(entitlements):
    user = new_user()
    first = entitlements.grant(user, "gold")
    problem = assert_problem(entitlements.grant(user, "gold"), 409, "ENTITLEMENT_STATE_CONFLICT")
    assert problem["entitlement"] == first.json()


def test_a_second_revoke_is_a_409_with_the_entitlement_as_it_is(entitlements):
    user = entitlements.granted()
    revoked = entitlements.revoke(user)
    problem = assert_problem(entitlements.revoke(user), 409, "ENTITLEMENT_STATE_CONFLICT")
    assert problem["entitlement"] == revoked.json()
    assert problem["entitlement"]["status"] == "REVOKED"


def test_revoking_what_was_never_granted_is_a_404_and_leaves_nothing(entitlements):
    user = new_user()
    assert_problem(entitlements.revoke(user), 404, "ENTITLEMENT_NOT_FOUND")
    assert entitlements.list(user).json()["entitlements"] == []
    assert entitlements.grant(user).json()["version"] == 1


def test_units_of_a_user_and_users_of_a_unit_are_apart(entitlements):
    users = [new_user(), new_user()]
    for user in users:
        for unit in ("a", "b"):
            assert entitlements.grant(user, unit).json()["version"] == 1
    assert entitlements.revoke(users[0], "a").json()["version"] == 2
    assert [e["status"] for e in entitlements.list(users[0]).json()["entitlements"]] == ["REVOKED", "ACTIVE"]
    assert [e["status"] for e in entitlements.list(users[1]).json()["entitlements"]] == ["ACTIVE", "ACTIVE"]


def test_pairs_whose_texts_run_together_are_apart(entitlements):
    """The aggregate key of ("a:b", "c") and ("a", "b:c") is alike; the entitlements are not."""
    left, right = new_user(), new_user()
    assert entitlements.grant(f"{left}:{right}", "c").json()["version"] == 1
    assert entitlements.grant(left, f"{right}:c").json()["version"] == 1


@pytest.mark.parametrize("text", ["ü", "日本", "a b/c?d#e%f", '"\\', "x" * 128, "é" * 64])
def test_any_text_of_128_bytes_will_do(entitlements, text):
    user = new_user()
    answer = entitlements.grant(user, text, reason=text, purchase=text)
    assert answer.json()["stock_keeping_unit"] == text
    assert [e["stock_keeping_unit"] for e in entitlements.list(user).json()["entitlements"]] == [text]
    entitlements.wait_sent(user)
    assert entitlements.inbox(user)[0]["stock_keeping_unit"] == text


# ---- what is refused


@pytest.mark.parametrize("target", CHANGES)
def test_a_change_without_a_key_is_refused(entitlements, target):
    user = new_user()
    assert_problem(entitlements.ask("POST", target, change(user)), 400, "IDEMPOTENCY_KEY_REQUIRED")
    assert entitlements.list(user).json()["entitlements"] == []


@pytest.mark.parametrize("target", CHANGES)
@pytest.mark.parametrize("key", ["", "k" * 256, '"open'])
def test_a_key_that_is_none_is_refused(entitlements, target, key):
    assert_bad_request(entitlements.ask("POST", target, change(new_user()), key=key), "Idempotency-Key")


@pytest.mark.parametrize("target", CHANGES)
@pytest.mark.parametrize("field", FIELDS)
def test_each_field_is_required_not_empty_not_overlong_and_a_text(entitlements, target, field):
    user = new_user()
    missing = change(user)
    del missing[field]
    bodies = [missing] + [{**change(user), field: bad} for bad in ("", "x" * 129, "é" * 65, 7, None, ["a"], "a\u0001b")]
    for body in bodies:
        assert_bad_request(entitlements.ask("POST", target, body, key=new_key()), field)
    assert entitlements.list(user).json()["entitlements"] == []


@pytest.mark.parametrize("target", CHANGES)
def test_all_that_is_wrong_is_told_at_once(entitlements, target):
    problem = assert_bad_request(entitlements.ask("POST", target, {}, key=new_key()))
    assert {error["field"] for error in problem["errors"]} == set(FIELDS) - {"purchase_id"}
    problem = assert_bad_request(entitlements.ask("POST", target, {"reason": "refund"}, key=new_key()))
    assert {error["field"] for error in problem["errors"]} == set(FIELDS) - {"reason"}


@pytest.mark.parametrize("target", CHANGES)
def test_a_purchase_that_is_named_without_need_is_checked_all_the_same(entitlements, target):
    for bad in ("", "x" * 129, 7, ["a"], "a\u0001b"):
        body = {**change(new_user(), reason="gift"), "purchase_id": bad}
        assert_bad_request(entitlements.ask("POST", target, body, key=new_key()), "purchase_id")


@pytest.mark.parametrize("target", CHANGES)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b'{"user_id":"a","user_id":"b"}', b"\xff"])
def test_a_body_that_is_no_object_is_refused(entitlements, target, body):
    assert_bad_request(entitlements.ask("POST", target, body, key=new_key()))


def test_a_refused_request_does_not_use_its_key_up(entitlements):
    user, key = new_user(), new_key()
    assert_bad_request(entitlements.grant(user, "", key=key))
    assert entitlements.grant(user, key=key).status == 200


@pytest.mark.parametrize("target", CHANGES)
def test_another_content_type_and_method_are_refused(entitlements, target):
    answer = entitlements.ask("POST", target, b"user_id=a", {"Content-Type": "text/plain"}, key=new_key())
    assert_problem(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    assert_problem(entitlements.ask("GET", target), 405, "METHOD_NOT_ALLOWED")


# ---- lists


def test_an_unknown_user_has_an_empty_list_and_an_empty_inbox(entitlements):
    user = new_user()
    assert entitlements.list(user).json() == {"user_id": user, "entitlements": []}
    assert entitlements.inbox(user) == []


def test_a_list_is_sorted_by_unit_and_paged_by_its_link(entitlements):
    user, units = new_user(), ["b", "a", "B", "aa", "é", "a b", "10", "9", "z&limit=1", "ü?"]
    for unit in units:
        assert entitlements.grant(user, unit).status == 200
    entitlements.revoke(user, "aa")
    expected = sorted(units, key=str.encode)
    whole = entitlements.list(user)
    assert [e["stock_keeping_unit"] for e in whole.json()["entitlements"]] == expected
    assert whole.header("link") is None
    for limit in (1, 3, 9, 10):
        entries, pages, target = [], 0, f"/v1/users/{quote(user)}/entitlements?limit={limit}"
        while target:
            page = entitlements.ask("GET", target)
            entries += page.json()["entitlements"]
            pages += 1
            link = re.fullmatch(r'<([^>]+)>; rel="next"', page.header("link") or "")
            assert (page.header("link") is None) == (link is None)
            target = link and link.group(1)
        assert entries == whole.json()["entitlements"]
        assert pages == -(-len(units) // limit)


@pytest.mark.parametrize("query", ["?limit=0", "?limit=1001", "?limit=x", "?limit=-1", "?limit="])
def test_a_limit_out_of_bounds_is_refused(entitlements, query):
    assert_bad_request(entitlements.list(new_user(), query), "limit")
    assert_bad_request(entitlements.ask("GET", f"/debug/notification/inbox/{new_user()}{query}"), "limit")


def test_the_inbox_shows_at_most_the_limit_of_the_newest(entitlements):
    user = new_user()
    for version in range(1, 5):
        (entitlements.grant if version % 2 else entitlements.revoke)(user, reason="trial", purchase=None)
        entitlements.wait_sent(user, count=version)
    assert [n["version"] for n in entitlements.inbox(user)] == [4, 3, 2, 1]
    assert [n["version"] for n in entitlements.inbox(user, "?limit=3")] == [4, 3, 2]


def test_a_user_id_that_is_overlong_is_refused(entitlements):
    assert_bad_request(entitlements.list("x" * 129), "user_id")
    assert_bad_request(entitlements.ask("GET", f"/debug/notification/inbox/{'x' * 129}"), "user_id")


# ---- in the tables


def test_a_change_is_a_row_an_audit_line_and_an_event(entitlements, shared_stack):
    user = new_user()
    entitlements.grant(user, purchase="p_7")
    entitlements.revoke(user, reason="fraud", purchase=None)
    entitlements.grant(user)
    entitlements.grant(user)  # refused: no change
    entitlements.grant(user, purchase="p_2")  # no event, because the status stays
    entitlements.wait_sent(user, count=3)
    (row,) = shared_stack.rows("entitlements", where=f"user_id = '{user}'")
    assert (row["status"], row["version"], row["step"]) == ("ACTIVE", 3, 1)
    lines = sorted(shared_stack.rows("entitlement_audit", where=f"user_id = '{user}'"),
                   key=lambda line: (line["version"], line["step"]))
    assert [(line["action"], line["version"], line["step"], line["reason"], line["purchase_id"]) for line in lines] == [
        ("GRANTED", 1, 0, "purchase", "p_7"), ("REVOKED", 2, 0, "fraud", None), ("GRANTED", 3, 0, "purchase", "p_1"),
        ("GRANTED", 3, 1, "purchase", "p_2")]
    events = shared_stack.rows("outbox_events", where=f"aggregate_key = '{user}:item1'")
    assert [line["event_id"] is None for line in lines] == [False, False, False, True]
    assert {event["event_id"] for event in events} == {line["event_id"] for line in lines[:3]}
    for event in events:
        assert (event["status"], event["attempt_count"], event["claim_epoch"]) == ("PUBLISHED", 0, 1)
        assert event["published_at"] and event["lease_until"] is None and event["last_error"] is None

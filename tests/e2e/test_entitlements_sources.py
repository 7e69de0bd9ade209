"""What an entitlement comes from: it lasts as long as one of its purchases or reasons does, and each counts once."""

import pytest

from harness.counts import new_key
from harness.entitlements import GRANTS, REVOKES, change, new_user
from harness.problems import assert_bad_request, assert_problem


def state(answer):
    assert answer.status == 200, answer
    return answer.json()["status"], answer.json()["version"]


# ---- purchases


def test_the_refund_of_one_purchase_leaves_what_another_paid_for(entitlements, shared_stack):
    user = new_user()
    first = entitlements.grant(user, purchase="p_1")
    second = entitlements.grant(user, purchase="p_2")
    assert second.json() == first.json(), "the entitlement has not changed"
    assert state(entitlements.revoke(user, purchase="p_1")) == ("ACTIVE", 1)
    assert entitlements.list(user).json()["entitlements"][0]["status"] == "ACTIVE"
    assert state(entitlements.revoke(user, purchase="p_2")) == ("REVOKED", 2)
    entitlements.wait_sent(user, count=2)
    assert [n["event_type"] for n in entitlements.inbox(user)] == ["EntitlementRevoked", "EntitlementGranted"]
    lines = shared_stack.rows("entitlement_audit", where=f"user_id = '{user}'")
    assert sorted((line["version"], line["step"], line["action"], line["purchase_id"]) for line in lines) == [
        (1, 0, "GRANTED", "p_1"), (1, 1, "GRANTED", "p_2"), (1, 2, "REVOKED", "p_1"), (2, 0, "REVOKED", "p_2")]


@pytest.mark.parametrize("status", ["ACTIVE", "REVOKED"])
def test_a_purchase_that_was_refunded_grants_nothing_again(entitlements, status):
    user = new_user()
    entitlements.grant(user, purchase="p_1")
    if status == "ACTIVE":
        entitlements.grant(user, purchase="p_2")
    now = entitlements.revoke(user, purchase="p_1").json()
    assert now["status"] == status
    for again in (entitlements.grant, entitlements.revoke):
        problem = assert_problem(again(user, purchase="p_1"), 409, "ENTITLEMENT_STATE_CONFLICT")
        assert problem["entitlement"] == now
    assert entitlements.sources(user)["purchase", "p_1"] == "REVOKED"


def test_the_refund_of_a_purchase_that_granted_nothing_is_a_404_and_changes_nothing(entitlements):
    user = new_user()
    entitlements.grant(user, purchase="p_1")
    problem = assert_problem(entitlements.revoke(user, purchase="p_9"), 404, "ENTITLEMENT_NOT_FOUND")
    assert "p_9" in problem["detail"]
    assert entitlements.sources(user) == {("purchase", "p_1"): "ACTIVE"}
    entitlements.revoke(user, purchase="p_1")
    assert entitlements.revoke(user, purchase="p_9").status == 409, "it is REVOKED already, whatever granted it"


def test_a_further_purchase_is_replayed_under_its_key_like_any_change(entitlements):
    user, key = new_user(), new_key()
    entitlements.grant(user, purchase="p_1")
    second = entitlements.grant(user, purchase="p_2", key=key)
    entitlements.revoke(user, reason="fraud", purchase=None)
    again = entitlements.grant(user, purchase="p_2", key=key)
    assert (again.status, again.body) == (200, second.body) and again.header("idempotent-replayed") == "true"
    assert entitlements.sources(user)["purchase", "p_2"] == "REVOKED"


# ---- reasons


def test_a_reason_without_a_purchase_is_a_source_that_may_come_back(entitlements):
    user = new_user()
    assert state(entitlements.grant(user, reason="trial", purchase=None)) == ("ACTIVE", 1)
    assert_problem(entitlements.grant(user, reason="trial", purchase=None), 409, "ENTITLEMENT_STATE_CONFLICT")
    assert state(entitlements.grant(user, reason="gift", purchase=None)) == ("ACTIVE", 1)
    assert state(entitlements.revoke(user, reason="fraud", purchase=None)) == ("REVOKED", 2)
    assert state(entitlements.grant(user, reason="trial", purchase=None)) == ("ACTIVE", 3)
    assert entitlements.sources(user) == {("reason", "trial"): "ACTIVE", ("reason", "gift"): "REVOKED"}


def test_a_purchase_and_a_reason_of_the_same_name_are_two_sources(entitlements):
    user = new_user()
    entitlements.grant(user, reason="gift", purchase="gift")
    assert state(entitlements.grant(user, reason="gift", purchase=None)) == ("ACTIVE", 1)
    assert state(entitlements.revoke(user, reason="refund", purchase="gift")) == ("ACTIVE", 1)
    assert entitlements.sources(user) == {("purchase", "gift"): "REVOKED", ("reason", "gift"): "ACTIVE"}


def test_a_revoke_without_a_purchase_ends_every_source(entitlements):
    user = new_user()
    for purchase in ("p_1", "p_2", "p_3"):
        entitlements.grant(user, purchase=purchase)
    entitlements.grant(user, reason="gift", purchase=None)
    entitlements.revoke(user, purchase="p_3")
    assert state(entitlements.revoke(user, reason="fraud", purchase=None)) == ("REVOKED", 2)
    assert set(entitlements.sources(user).values()) == {"REVOKED"}
    assert_problem(entitlements.revoke(user, reason="fraud", purchase=None), 409, "ENTITLEMENT_STATE_CONFLICT")
    assert_problem(entitlements.revoke(new_user(), reason="fraud", purchase=None), 404, "ENTITLEMENT_NOT_FOUND")
    assert state(entitlements.grant(user, purchase="p_4")) == ("ACTIVE", 3)


@pytest.mark.parametrize("target", [GRANTS, REVOKES])
@pytest.mark.parametrize("reason", ["purchase", "refund"])
def test_a_purchase_and_a_refund_must_name_the_purchase(entitlements, target, reason):
    for body in (change(new_user(), reason=reason, purchase=None), {**change(new_user(), reason=reason), "purchase_id": None}):
        assert_bad_request(entitlements.ask("POST", target, body, key=new_key()), "purchase_id")


def test_null_counts_as_no_purchase(entitlements):
    user = new_user()
    body = {**change(user, reason="gift"), "purchase_id": None}
    assert entitlements.ask("POST", GRANTS, body, key=new_key()).status == 200
    assert entitlements.sources(user) == {("reason", "gift"): "ACTIVE"}


# ---- one entitlement


def test_an_entitlement_is_shown_with_its_sources_active_ones_first(entitlements):
    user, unit = new_user(), "gold é?1"
    entitlements.grant(user, unit, purchase="p_1")
    entitlements.grant(user, unit, purchase="p_2")
    entitlements.grant(user, unit, reason="gift", purchase=None)
    entitlements.revoke(user, unit, purchase="p_1")
    shown = entitlements.look(user, unit).json()
    assert list(shown) == ["user_id", "stock_keeping_unit", "status", "version", "updated_at", "sources"]
    sources = shown.pop("sources")
    assert {"user_id": user, **entitlements.list(user).json()["entitlements"][0]} == shown
    assert [(one["kind"], one["source_id"], one["reason"], one["status"]) for one in sources] == [
        ("reason", "gift", "gift", "ACTIVE"), ("purchase", "p_2", "purchase", "ACTIVE"),
        ("purchase", "p_1", "purchase", "REVOKED")]
    assert all(list(one) == ["kind", "source_id", "reason", "status", "granted_at", "revoked_at"] for one in sources)
    assert [one["revoked_at"] is None for one in sources] == [True, True, False]
    assert shown["updated_at"] == sources[2]["granted_at"] < sources[1]["granted_at"] < sources[2]["revoked_at"]


def test_an_entitlement_that_was_never_granted_is_a_404(entitlements):
    user = entitlements.granted()
    assert_problem(entitlements.look(user, "item2"), 404, "ENTITLEMENT_NOT_FOUND")
    assert_problem(entitlements.look(new_user()), 404, "ENTITLEMENT_NOT_FOUND")
    assert_bad_request(entitlements.look("x" * 129), "user_id")
    assert_bad_request(entitlements.look(user, "x" * 129), "stock_keeping_unit")

"""Many grants in one request: each is made once, with its audit line, event and notification, as if it had come alone."""

import pytest

from harness.counts import new_key
from harness.entitlements import change, new_user
from harness.http import Connection, ask_all, render
from harness.problems import assert_bad_request, assert_problem

BATCH = "/v1/entitlements/grants/batch"


def grant(user, key=None, **more):
    return {**change(user, **more), "idempotency_key": key or new_key()}


def grant_all(client, *grants, **options):
    return client.ask("POST", BATCH, {"grants": list(grants)}, **options)


def test_each_grant_has_its_own_result_and_everything_that_a_grant_has(entitlements, shared_stack):
    users, taken = [new_user() for _ in range(20)], new_user()
    assert entitlements.grant(taken).status == 200
    answer = grant_all(entitlements, *(grant(user) for user in users), grant(taken), grant(taken, purchase="p_2"))
    assert answer.status == 200
    found = answer.json()["results"]
    assert [(result["user_id"], result["status"], result["version"]) for result in found[:20]] == [
        (user, "ACTIVE", 1) for user in users]
    assert found[20]["problem"]["code"] == "ENTITLEMENT_STATE_CONFLICT" and found[21]["version"] == 1
    entitlements.wait_sent(*users)
    for user in users:
        assert shared_stack.count("entitlement_audit", f"user_id = '{user}'") == 1


def test_a_campaign_that_is_sent_again_grants_nothing_twice_and_shares_its_keys_with_single_grants(entitlements):
    users = [new_user() for _ in range(5)]
    grants = [grant(user) for user in users]
    assert entitlements.grant(users[0], key=grants[0]["idempotency_key"]).status == 200
    first, again = grant_all(entitlements, *grants), grant_all(entitlements, *grants)
    assert [result.get("replayed", False) for result in first.json()["results"]] == [True, False, False, False, False]
    assert all(result.pop("replayed") for result in again.json()["results"])
    for entry, user in zip(grants, users):
        repeated = entitlements.grant(user, key=entry["idempotency_key"])
        assert (repeated.status, repeated.header("idempotent-replayed"), repeated.json()["version"]) == (200, "true", 1)
    other = grant_all(entitlements, grant(users[0], key=grants[0]["idempotency_key"], unit="item2"))
    assert other.json()["results"][0]["problem"]["code"] == "IDEMPOTENCY_KEY_CONFLICT"


def test_a_campaign_that_was_cut_off_by_a_crash_is_complete_after_its_retry(serve, entitlements_client, nats_stack):
    grants = [grant(new_user()) for _ in range(200)]
    server = serve(nats_stack, "--batch-max", "20", env={"QUIPU_FAILPOINTS": "commit.after=kill@3"})
    with Connection(server.port) as connection:
        connection.send(render("POST", BATCH, {"grants": grants}))
        server.expect_to_be_killed()
    server = serve(nats_stack)
    (answer,) = ask_all([(server.port, render("POST", BATCH, {"grants": grants}))])
    found = answer.json()["results"]
    assert [(result["status"], result["version"]) for result in found] == [("ACTIVE", 1)] * 200
    assert 0 < sum(result.get("replayed", False) for result in found) < 200
    nats_stack.wait_published()
    assert nats_stack.count("entitlement_audit") == nats_stack.count("entitlements") == 200


@pytest.mark.parametrize("more, field", [
    ({"user_id": None}, "grants[0].user_id"), ({"reason": 5}, "grants[0].reason"), ({"purchase_id": ""}, "grants[0].purchase_id"),
    ({"idempotency_key": None}, "grants[0].idempotency_key"), ({"idempotency_key": "x" * 256}, "grants[0].idempotency_key"),
])
def test_one_bad_grant_refuses_the_whole_request(entitlements, more, field):
    user = new_user()
    assert_bad_request(grant_all(entitlements, {**grant(user), **more}, grant(user)), field)
    assert entitlements.list(user).json()["entitlements"] == []


def test_a_batch_of_nothing_of_too_much_or_with_one_key_for_all_is_refused(entitlements):
    for grants in ([], [grant("u")] * 1001, [1]):
        assert_problem(grant_all(entitlements, *grants), 400, "BAD_REQUEST")
    assert_problem(grant_all(entitlements, {**grant("u"), "sku": "x"}), 400, "UNKNOWN_FIELD")
    assert_bad_request(grant_all(entitlements, grant("u"), key=new_key()), "Idempotency-Key")

"""Idempotency-Key of grants and revokes: one effect and one answer, byte for byte, for 24 hours."""

import pytest

from harness.counts import new_key
from harness.entitlements import GRANTS, REVOKES, change, new_user, request_bytes
from harness.http import ask_all
from harness.problems import assert_problem


def assert_replay(first, second):
    assert first.header("idempotent-replayed") is None, first
    assert second.header("idempotent-replayed") == "true", second
    assert (second.status, second.body) == (first.status, first.body)
    assert second.header("content-type") == first.header("content-type")


def test_a_repeated_change_is_replayed_byte_for_byte_whatever_happened_since(entitlements, shared_stack):
    user, keys = new_user(), [new_key() for _ in range(3)]
    granted = entitlements.grant(user, key=keys[0])
    revoked = entitlements.revoke(user, key=keys[1])
    entitlements.grant(user, purchase="p_2", key=keys[2])
    for _ in range(2):
        assert_replay(granted, entitlements.grant(user, key=keys[0]))
        assert_replay(revoked, entitlements.revoke(user, key=keys[1]))
    assert entitlements.list(user).json()["entitlements"][0]["version"] == 3
    entitlements.wait_sent(user, count=3)
    assert shared_stack.count("entitlement_audit", f"user_id = '{user}'") == 3


def test_a_refusal_by_state_is_replayed_too(entitlements):
    user, keys = new_user(), [new_key() for _ in range(2)]
    missing = entitlements.revoke(user, key=keys[0])
    assert missing.status == 404
    entitlements.grant(user)
    conflict = entitlements.grant(user, key=keys[1])
    assert conflict.status == 409
    entitlements.revoke(user)
    assert_replay(missing, entitlements.revoke(user, key=keys[0]))
    assert_replay(conflict, entitlements.grant(user, key=keys[1]))


@pytest.mark.parametrize("field", ["user_id", "stock_keeping_unit", "reason", "purchase_id"])
def test_another_body_under_the_same_key_is_a_conflict_and_changes_nothing(entitlements, field):
    user, key = new_user(), new_key()
    first = entitlements.grant(user, key=key)
    other = {**change(user), field: new_user()}
    assert_problem(entitlements.ask("POST", GRANTS, other, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert entitlements.list(other["user_id"]).json()["entitlements"] == (
        [] if field == "user_id" else entitlements.list(user).json()["entitlements"])
    assert len(entitlements.list(user).json()["entitlements"]) == 1
    assert_replay(first, entitlements.grant(user, key=key))


def test_grants_and_revokes_have_keys_of_their_own(entitlements):
    user, key = new_user(), new_key()
    granted, revoked = entitlements.grant(user, key=key), entitlements.revoke(user, key=key)
    assert (granted.json()["version"], revoked.json()["version"]) == (1, 2)
    assert_replay(granted, entitlements.grant(user, key=key))
    assert_replay(revoked, entitlements.revoke(user, key=key))


def test_a_bare_and_a_quoted_key_are_one_key(entitlements):
    user, key = new_user(), new_key()
    assert_replay(entitlements.grant(user, key=key), entitlements.grant(user, key=f'"{key}"'))


def test_keys_are_remembered_for_24_hours_across_restarts_and_not_longer(serve, entitlements_client, entitlement_stack):
    user, key = new_user(), new_key()
    server = serve(entitlement_stack)
    first = entitlements_client(server).grant(user, key=key)
    server.stop()
    server = serve(entitlement_stack, env={"QUIPU_TEST_CLOCK_OFFSET": "23h"})
    assert_replay(first, entitlements_client(server).grant(user, key=key))
    server.stop()
    client = entitlements_client(serve(entitlement_stack, env={"QUIPU_TEST_CLOCK_OFFSET": "25h"}))
    answer = client.grant(user, key=key)
    assert (answer.status, answer.code) == (409, "ENTITLEMENT_STATE_CONFLICT")
    assert answer.header("idempotent-replayed") is None


def test_one_key_at_one_moment_on_two_processes_is_one_effect_and_one_answer(serve, nats_stack):
    servers = [serve(nats_stack), serve(nats_stack.beside())]
    users = [new_user() for _ in range(12)]
    requests = [(server.port, request_bytes(GRANTS, change(user), f"key-of-{user}"))
                for user in users for _ in range(4) for server in servers]
    answers = ask_all(requests)
    for number, user in enumerate(users):
        ours = answers[8 * number:8 * number + 8]
        assert {(answer.status, answer.body) for answer in ours} == {(200, ours[0].body)}
        assert sum(answer.header("idempotent-replayed") is None for answer in ours) == 1
        assert ours[0].json()["version"] == 1
    assert nats_stack.count("entitlement_audit") == nats_stack.count("outbox_events") == len(users)
    nats_stack.wait_all_sent(len(users))


def test_one_key_for_two_bodies_at_one_moment_is_one_effect(serve, nats_stack):
    servers = [serve(nats_stack), serve(nats_stack.beside())]
    pairs = [(new_user(), new_user(), new_key()) for _ in range(10)]
    answers = ask_all((servers[number].port, request_bytes(GRANTS, change(pair[number]), pair[2]))
                      for pair in pairs for number in (0, 1))
    for first, second in zip(answers[::2], answers[1::2]):
        assert sorted([first.status, second.status]) == [200, 409]
        assert (first if first.status == 409 else second).code == "IDEMPOTENCY_KEY_CONFLICT"
    assert nats_stack.count("outbox_events") == len(pairs)


def test_a_key_survives_kill_9(serve, entitlements_client, entitlement_stack):
    user, key = new_user(), new_key()
    server = serve(entitlement_stack)
    first = entitlements_client(server).grant(user, key=key)
    server.kill()
    client = entitlements_client(serve(entitlement_stack))
    assert_replay(first, client.grant(user, key=key))
    assert client.ask("POST", REVOKES, change(user), key=key).json()["version"] == 2

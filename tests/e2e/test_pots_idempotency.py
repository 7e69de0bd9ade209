"""A retry with its Idempotency-Key gives the first answer byte for byte and changes nothing, also after a crash."""

import pytest

from harness.http import ask_all
from harness.pots import assert_error, coins, counts_of, new_key, new_name, request


def assert_replayed(answer, first):
    assert (answer.status, answer.body) == (first.status, first.body)
    assert answer.header("content-type") == first.header("content-type")
    assert answer.header("idempotent-replayed") == "true"


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_a_retried_draw_returns_the_same_coins(pots, encoding):
    pot_id, key = pots.new_pot(max_coins=10**6, bronze=3000, silver=3000, gold=3000), new_key()
    first = pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1000}, key=key, encoding=encoding)
    assert first.status == 200 and first.header("idempotent-replayed") is None
    for _ in range(3):
        assert_replayed(pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1000}, key=key, encoding=encoding), first)
    assert sum(pots.content(pot_id).values()) == 8000


def test_every_change_is_made_once(pots):
    pot_id = pots.new_pot(gold=5)
    for method, fields in [
        ("CreatePot", {"pot_name": new_name(), "max_coins": 10}),
        ("AddCoins", {"pot_id": pot_id, "coins": coins(bronze=2)}),
        ("RemoveCoins", {"pot_id": pot_id, "coins": coins(gold=1)}),
    ]:
        key = new_key()
        first = pots.call(method, fields, key=key)
        assert first.status == 200, first
        assert_replayed(pots.call(method, fields, key=key), first)
    assert pots.content(pot_id) == {"BRONZE": 2, "GOLD": 4}


def test_refusals_decided_by_state_are_remembered(pots):
    name = new_name()
    pots.get("CreatePot", {"pot_name": name, "max_coins": 10})
    pot_id = pots.new_pot(max_coins=10, gold=10)
    for method, fields, code in [
        ("CreatePot", {"pot_name": name, "max_coins": 10}, "already_exists"),
        ("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)}, "failed_precondition"),
        ("AddCoins", {"pot_id": 2**31 - 1, "coins": coins(gold=1)}, "not_found"),
    ]:
        key = new_key()
        first = pots.call(method, fields, key=key)
        assert_error(first, code)
        assert_replayed(pots.call(method, fields, key=key), first)
    pots.get("RemoveCoins", {"pot_id": pot_id, "coins": coins(gold=5)})


def test_a_refusal_for_wrong_arguments_is_not_remembered(pots):
    pot_id, key = pots.new_pot(), new_key()
    assert_error(pots.call("AddCoins", {"pot_id": pot_id}, key=key), "invalid_argument")
    answer = pots.call("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)}, key=key)
    assert answer.status == 200 and answer.header("idempotent-replayed") is None


def test_another_request_under_the_same_key_is_a_conflict(pots):
    pot_id, key = pots.new_pot(gold=50), new_key()
    pots.get("RemoveCoins", {"pot_id": pot_id, "count": 1}, key=key)
    answer = pots.call("RemoveCoins", {"pot_id": pot_id, "count": 2}, key=key)
    assert_error(answer, "already_exists", "IDEMPOTENCY_KEY_CONFLICT")
    assert pots.content(pot_id) == {"GOLD": 49}


def test_json_and_protobuf_are_different_requests(pots):
    pot_id, key = pots.new_pot(gold=50), new_key()
    pots.get("RemoveCoins", {"pot_id": pot_id, "count": 1}, key=key, encoding="json")
    answer = pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1}, key=key, encoding="protobuf")
    assert_error(answer, "already_exists", "IDEMPOTENCY_KEY_CONFLICT")
    assert pots.content(pot_id) == {"GOLD": 49}


def test_a_key_belongs_to_its_method(pots):
    pot_id, key = pots.new_pot(gold=50), new_key()
    pots.get("RemoveCoins", {"pot_id": pot_id, "coins": coins(gold=1)}, key=key)
    pots.get("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)}, key=key)
    assert pots.content(pot_id) == {"GOLD": 50}


def test_one_key_in_a_burst_has_one_effect(pots, pots_server):
    pot_id, key = pots.new_pot(max_coins=10**6, bronze=1000, silver=1000), new_key()
    answers = ask_all(
        (pots_server.port, request("RemoveCoins", {"pot_id": pot_id, "count": 100}, key=key)) for _ in range(40))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert sum(counts_of(answers[0].json()).values()) == 100
    assert sum(pots.content(pot_id).values()) == 1900


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_keys_that_are_refused(pots, key):
    pot_id = pots.new_pot()
    answer = pots.call("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)}, key=key)
    assert_error(answer, "invalid_argument", argument="Idempotency-Key")
    assert pots.content(pot_id) == {}


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_draw_that_was_cut_off_is_resolved_by_its_key(serve, pots_client, store, point):
    first = serve(store, "--roles", "pots")
    pot_id, key = pots_client(first).new_pot(max_coins=10**6, bronze=1000, silver=1000, gold=1000), new_key()
    first.stop()
    doomed = serve(store, "--roles", "pots", env={"QUIPU_FAILPOINTS": f"{point}=kill@1"})
    with doomed.connect() as connection:
        connection.send(request("RemoveCoins", {"pot_id": pot_id, "count": 500}, key=key))
        doomed.expect_to_be_killed()
    pots = pots_client(serve(store, "--roles", "pots"))
    answer = pots.call("RemoveCoins", {"pot_id": pot_id, "count": 500}, key=key)
    assert answer.status == 200
    assert answer.header("idempotent-replayed") == (None if point == "commit.before" else "true")
    removed = counts_of(answer.json())
    left = pots.content(pot_id)
    assert sum(removed.values()) == 500
    assert {kind: removed.get(kind, 0) + left[kind] for kind in left} == {"BRONZE": 1000, "SILVER": 1000, "GOLD": 1000}

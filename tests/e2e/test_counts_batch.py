"""Many changes in one request: each is answered as if it had come alone, on both stores."""

import collections
import contextlib
import os
import random

import pytest

from harness.counts import INT64_MAX, action, increase_request, new_id, new_key
from harness.http import ask_all, render
from harness.problems import assert_bad_request, assert_problem
from harness.verify import verified
from harness.waiting import wait_until

BATCH = "/api/v1/counts/batch"


def change(item, verb="increase", amount=None, key=None):
    body = {"itemId": item, "verb": verb, "amount": amount, "idempotencyKey": key}
    return {name: value for name, value in body.items() if value is not None}


def batch(counts, *changes, atomic=None, **options):
    body = {"changes": list(changes)}
    if atomic is not None:
        body["atomic"] = atomic
    return counts.ask("POST", BATCH, body, **options)


def results(answer):
    """A value, or the code of a problem, for each change."""
    assert answer.status == 200, answer
    return [result["value"] if "value" in result else result["problem"]["code"] for result in answer.json()["results"]]


def test_each_change_gets_its_own_result_in_order(counts):
    first, second, missing = counts.new_item(5), counts.new_bounded(1, 0), new_id()
    answer = batch(counts, change(first, amount=3), change(second, "decrease"), change(missing),
                   change(second, "decrease"), change(first, "reset"), change(first, "decrease", 2), change(first, amount=INT64_MAX))
    assert results(answer) == [8, 0, "COUNT_NOT_FOUND", "COUNT_OUT_OF_BOUNDS", 0, -2, INT64_MAX - 2]
    assert [result["itemId"] for result in answer.json()["results"]] == [first, second, missing, second, first, first, first]
    assert answer.json()["results"][3]["problem"] == counts.decrease(second).json(), "as the single request has it"
    assert (counts.value(first), counts.value(second)) == (INT64_MAX - 2, 0)


def test_a_thousand_changes_are_made_in_one_request(counts):
    items = [counts.new_item() for _ in range(10)]
    answer = batch(counts, *(change(items[n % 10], amount=1) for n in range(1000)))
    assert results(answer) == [1 + n // 10 for n in range(1000)]
    assert_bad_request(batch(counts, *(change(items[0]) for _ in range(1001))), field="changes")
    assert [counts.value(item) for item in items] == [100] * 10


@pytest.mark.parametrize("options", [{"atomic": True}, {"key": "k"}], ids=["atomic", "keyed"])
def test_a_batch_in_one_transaction_counts_as_its_changes(serve, client, store, options):
    server = serve(store)
    counts = client(server)
    item = counts.new_item()
    before = server.metric("quipu_batch_size_sum"), server.metric("quipu_batch_size_count")
    assert results(batch(counts, *(change(item) for _ in range(1000)), **options)) == list(range(1, 1001))
    after = server.metric("quipu_batch_size_sum"), server.metric("quipu_batch_size_count")
    assert (after[0] - before[0], after[1] - before[1]) == (1000, 1)


def test_the_depth_of_a_lane_counts_the_changes_of_an_atomic_batch(serve, client, store, tmp_path):
    """While a commit is held, a batch of 12 and one of 3 fit into a lane of 20, also as changes of one item, but no 9 beside
    the 12."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = serve(store, "--lane-depth", "20", "--lanes", "1", "--deadline", "1h",
                   env={"QUIPU_FAILPOINTS": "commit.before=hold@2", "QUIPU_FAILPOINT_GATE": str(gate)})
    counts = client(server)
    item = counts.new_item()  # the first commit

    def atomic(size):
        return render("POST", BATCH, {"atomic": True, "changes": [change(item)] * size})

    with contextlib.ExitStack() as stack:
        held, twelve, nine, three = (stack.enter_context(server.connect()) for _ in range(4))
        held.send(increase_request(item))
        with open(gate, "wb"):  # opens when the commit is held; closing it lets the commit go on
            twelve.send(atomic(12))
            wait_until(lambda: server.metric("quipu_lane_depth") == 12, "the batch waits in the lane")
            nine.send(atomic(9))
            assert_problem(nine.read_answer(), 503, "OVERLOADED")
            three.send(atomic(3))
            wait_until(lambda: server.metric("quipu_lane_depth") == 15, "the smaller batch waits as well")
        assert held.read_answer().json()["value"] == 1
        assert results(twelve.read_answer()) == list(range(2, 14))
        assert results(three.read_answer()) == [14, 15, 16]
    assert counts.value(item) == 16


def test_a_key_of_a_change_is_that_of_the_single_request(counts):
    item, key, other = counts.new_item(), new_key(), new_key()
    first = batch(counts, change(item, amount=2, key=key), change(item, key=other))
    assert first.json()["results"] == [{"itemId": item, "value": 2}, {"itemId": item, "value": 3}]
    again = counts.increase(item, 2, key=key)
    assert (again.json(), again.header("idempotent-replayed")) == ({"itemId": item, "value": 2}, "true")
    assert counts.increase(item, key=other).json()["value"] == 3
    single = new_key()
    assert counts.decrease(item, 1, key=single).json()["value"] == 2
    repeated = batch(counts, change(item, "decrease", 1, key=single), change(item, amount=2, key=key),
                     change(item, "decrease", 9, key=single))
    assert repeated.json()["results"][:2] == [
        {"itemId": item, "value": 2, "replayed": True}, {"itemId": item, "value": 2, "replayed": True}]
    assert results(repeated)[2] == "IDEMPOTENCY_KEY_CONFLICT"
    assert counts.value(item) == 2


def test_a_key_twice_in_a_batch_has_one_effect(counts):
    item, key, missing = counts.new_item(), new_key(), new_id()
    answer = batch(counts, change(item, key=key), change(item, key=key), change(missing, "reset", key=key),
                   change(missing, "reset", key=key))
    assert answer.json()["results"][:2] == [{"itemId": item, "value": 1}, {"itemId": item, "value": 1, "replayed": True}]
    assert answer.json()["results"][3]["replayed"] is True
    assert counts.value(item) == 1


def test_a_key_for_the_request_keeps_all_of_its_results(counts, binary, shared_server):
    item, missing, key = counts.new_item(), new_id(), new_key()
    changes = [change(item, amount=4), change(missing), change(item, "decrease")]
    first, again = batch(counts, *changes, key=key), batch(counts, *changes, key=key)
    assert results(first) == [4, "COUNT_NOT_FOUND", 3]
    assert again.body == first.body and again.header("idempotent-replayed") == "true"
    assert_problem(batch(counts, *changes[:2], key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert counts.value(item) == 3
    assert verified(binary, shared_server, "counts")[0] == set()


def test_an_atomic_batch_makes_all_changes_or_none_and_says_which_was_refused(counts):
    first, second, key = counts.new_bounded(10, 0), counts.new_item(), new_key()
    assert results(batch(counts, change(first, "decrease", 4), change(second, amount=4), atomic=True)) == [6, 4]
    changes = [change(second, amount=9), change(first, amount=1), change(first, "decrease", 8)]
    refused = batch(counts, *changes, atomic=True, key=key)
    problem = assert_problem(refused, 409, "COUNT_OUT_OF_BOUNDS")
    assert (problem["index"], problem["value"], problem["minValue"]) == (2, 7, 0)
    missing = batch(counts, change(second, "reset"), change(new_id()), atomic=True)
    assert assert_problem(missing, 404, "COUNT_NOT_FOUND")["index"] == 1
    assert (counts.value(first), counts.value(second)) == (6, 4)
    counts.increase(first, 100)
    again = batch(counts, *changes, atomic=True, key=key)
    assert (again.status, again.body, again.header("idempotent-replayed")) == (409, refused.body, "true")


@pytest.mark.parametrize("body, field", [
    ({}, "changes"), ({"changes": None}, "changes"), ({"changes": []}, "changes"), ({"changes": {}}, "changes"),
    ({"changes": [3]}, "changes[0]"), ({"changes": [{"verb": "reset"}]}, "changes[0].itemId"),
    ({"changes": [{"itemId": "", "verb": "reset"}]}, "changes[0].itemId"),
    ({"changes": [{"itemId": "a"}]}, "changes[0].verb"), ({"changes": [{"itemId": "a", "verb": "set"}]}, "changes[0].verb"),
    ({"changes": [{"itemId": "a", "verb": 1}]}, "changes[0].verb"),
    ({"changes": [{"itemId": "a", "verb": "increase", "amount": 0}]}, "changes[0].amount"),
    ({"changes": [{"itemId": "a", "verb": "increase", "amount": "1"}]}, "changes[0].amount"),
    ({"changes": [{"itemId": "a", "verb": "reset", "amount": 1}]}, "changes[0].amount"),
    ({"changes": [{"itemId": "a", "verb": "reset", "idempotencyKey": ""}]}, "changes[0].idempotencyKey"),
    ({"changes": [{"itemId": "a", "verb": "reset", "idempotencyKey": "x" * 256}]}, "changes[0].idempotencyKey"),
    ({"changes": [{"itemId": "a", "verb": "reset", "idempotencyKey": 5}]}, "changes[0].idempotencyKey"),
    ({"changes": [{"itemId": "a", "verb": "reset"}], "atomic": 1}, "atomic"),
    ({"changes": [{"itemId": "a", "verb": "reset", "idempotencyKey": "k"}], "atomic": True}, "changes[0].idempotencyKey"),
])
def test_a_batch_that_is_not_described_properly_is_refused(counts, body, field):
    assert_bad_request(counts.ask("POST", BATCH, body), field=field)


def test_one_bad_change_refuses_the_whole_request_and_nothing_is_changed(counts):
    item = counts.new_item()
    assert_bad_request(batch(counts, change(item), change(item, "decrease", -1)), field="changes[1].amount")
    answer = counts.ask("POST", BATCH, {"changes": [change(item), {"itemId": item, "verb": "increase", "amont": 3}]})
    assert 'did you mean "amount"?' in assert_problem(answer, 400, "UNKNOWN_FIELD")["detail"]
    assert_bad_request(batch(counts, change(item, key="k"), key=new_key()), field="changes[0].idempotencyKey")
    assert counts.value(item) == 0


def test_batches_and_single_changes_at_one_moment_add_up_from_two_processes(serve, client, postgres_store):
    servers = [serve(postgres_store), serve(postgres_store)]
    counts = client(servers[0])
    items = [counts.new_item() for _ in range(20)]
    chance, expected, requests = random.Random(18), collections.Counter(), []
    for number in range(120):
        changes = [change(chance.choice(items), amount=chance.randint(1, 9)) for _ in range(chance.randint(1, 60))]
        expected.update({item: 0 for item in items})
        for entry in changes:
            expected[entry["itemId"]] += entry["amount"]
        body = {"changes": changes, "atomic": number % 3 == 0}
        headers = {"Idempotency-Key": new_key()} if number % 5 == 0 else {}
        requests.append((servers[number % 2].port, render("POST", BATCH, body, headers)))
        single = chance.choice(items)
        expected[single] += 1
        requests.append((servers[(number + 1) % 2].port, render("POST", action(single, "increase"))))
    answers = ask_all(requests)
    assert {answer.status for answer in answers} == {200}
    assert {item: counts.value(item) for item in items} == dict(expected)

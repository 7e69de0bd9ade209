"""Idempotency-Key: the first answer, byte for byte, and no second effect, on both stores."""

import contextlib
import signal

import pytest

from harness.counts import COLLECTION, INT64_MAX, action, increase_request, new_id, new_key, record
from harness.http import ConnectionLost, ask_all, render
from harness.problems import assert_bad_request, assert_problem
from harness.waiting import wait_until


def assert_replay(first, second):
    """`second` is the stored `first`."""
    assert first.header("idempotent-replayed") is None, first
    assert second.header("idempotent-replayed") == "true", second
    assert second.status == first.status
    assert second.body == first.body
    for name in ("content-type", "location"):
        assert second.header(name) == first.header(name)


def assert_one_effect(answers):
    """Of requests with one key at one moment, one had an effect and all were answered alike."""
    assert len({(answer.status, answer.body) for answer in answers}) == 1, answers
    assert sum(answer.header("idempotent-replayed") is None for answer in answers) == 1


@pytest.mark.parametrize(
    "verb, body, value",
    [("increase", None, 11), ("increase", {"amount": 5}, 15), ("decrease", {"amount": 5}, 5), ("reset", None, 0)],
)
def test_a_repeated_change_is_replayed_and_has_no_second_effect(counts, verb, body, value):
    item, key = counts.new_item(10), new_key()
    first = counts.ask("POST", action(item, verb), body, key=key)
    assert first.json()["value"] == value
    counts.increase(item, 100)
    assert_replay(first, counts.ask("POST", action(item, verb), body, key=key))
    assert counts.value(item) == value + 100


def test_a_repeated_create_is_replayed_with_its_location(counts):
    item, key = new_id("größe"), new_key()
    first = counts.create(item, 3, key=key)
    assert first.status == 201 and first.header("location")
    counts.increase(item)
    assert_replay(first, counts.create(item, 3, key=key))
    assert counts.value(item) == 4


def test_a_repeated_delete_is_replayed_even_after_the_item_came_back(counts):
    item, key = counts.new_item(1), new_key()
    first = counts.delete(item, key=key)
    assert first.status == 204
    counts.create(item, 2)
    assert_replay(first, counts.delete(item, key=key))
    assert counts.value(item) == 2


def test_a_replay_can_be_repeated_as_often_as_one_likes(counts):
    item, key = counts.new_item(), new_key()
    first = counts.increase(item, key=key)
    for _ in range(20):
        assert_replay(first, counts.increase(item, key=key))
    assert counts.value(item) == 1


def test_without_a_key_a_repeated_change_is_a_second_change(counts):
    item = counts.new_item()
    assert counts.increase(item).header("idempotent-replayed") is None
    assert counts.increase(item).json()["value"] == 2


def test_other_keys_are_other_changes(counts):
    item = counts.new_item()
    assert [counts.increase(item, key=new_key()).json()["value"] for _ in range(3)] == [1, 2, 3]


def test_a_404_is_stored_and_replayed(counts):
    item, key = new_id(), new_key()
    first = counts.increase(item, key=key)
    assert_problem(first, 404, "COUNT_NOT_FOUND")
    counts.create(item)
    assert_replay(first, counts.increase(item, key=key))
    assert counts.value(item) == 0


def test_a_409_for_an_item_that_exists_is_stored_and_replayed(counts):
    item, key = counts.new_item(), new_key()
    first = counts.create(item, key=key)
    assert_problem(first, 409, "COUNT_EXISTS")
    counts.delete(item)
    assert_replay(first, counts.create(item, key=key))
    assert counts.get(item).status == 404


def test_a_409_for_an_overflow_is_stored_and_replayed(counts):
    item, key = counts.new_item(INT64_MAX), new_key()
    first = counts.increase(item, key=key)
    assert_problem(first, 409, "COUNT_OVERFLOW")
    counts.reset(item)
    assert_replay(first, counts.increase(item, key=key))
    assert counts.value(item) == 0


def test_a_400_is_not_stored(counts):
    item, key = counts.new_item(), new_key()
    assert_bad_request(counts.increase(item, 0, key=key))
    answer = counts.increase(item, 2, key=key)
    assert (answer.status, answer.json()["value"]) == (200, 2)
    assert answer.header("idempotent-replayed") is None


def test_the_same_key_with_another_body_is_a_conflict(counts):
    item, key = counts.new_item(), new_key()
    first = counts.increase(item, 1, key=key)
    assert_problem(counts.increase(item, 2, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert counts.value(item) == 1
    assert_replay(first, counts.increase(item, 1, key=key))


def test_the_same_key_with_another_path_is_a_conflict(counts):
    item, other, key = counts.new_item(), counts.new_item(), new_key()
    counts.increase(item, key=key)
    assert_problem(counts.increase(other, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert counts.value(other) == 0


def test_the_same_key_on_another_route_is_another_key(counts):
    item, key = counts.new_item(10), new_key()
    answers = [
        counts.increase(item, key=key),
        counts.decrease(item, key=key),
        counts.reset(item, key=key),
        counts.delete(item, key=key),
        counts.create(item, key=key),
    ]
    assert [answer.status for answer in answers] == [200, 200, 200, 204, 201]
    assert all(answer.header("idempotent-replayed") is None for answer in answers)


def test_a_conflict_within_one_burst_lets_one_request_win(counts, shared_server):
    item, key = counts.new_item(), new_key()
    answers = ask_all((shared_server.port, increase_request(item, 1 + number % 2, key)) for number in range(40))
    winners = [answer for answer in answers if answer.status == 200]
    losers = [answer for answer in answers if answer.status != 200]
    assert len(winners) == len(losers) == 20
    assert_one_effect(winners)
    for answer in losers:
        assert_problem(answer, 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert counts.value(item) == winners[0].json()["value"] in (1, 2)


def test_a_key_may_be_quoted(counts):
    item, key = counts.new_item(), new_key()
    first = counts.increase(item, key=key)
    assert_replay(first, counts.increase(item, key=f'"{key}"'))
    assert counts.value(item) == 1


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_key_of_255_bytes_is_accepted(counts, quote):
    item, key = counts.new_item(), new_key().ljust(255, "k")
    first = counts.increase(item, key=quote + key + quote)
    assert first.status == 200
    assert_replay(first, counts.increase(item, key=quote + key + quote))


@pytest.mark.parametrize("key", ["", '""', "k" * 256, "k" * 257, '"' + "k" * 256 + '"'], ids=len)
def test_an_empty_or_too_long_key_is_refused(counts, key):
    item = counts.new_item()
    assert_bad_request(counts.increase(item, key=key))
    assert_bad_request(counts.create(new_id(), key=key))
    assert counts.value(item) == 0


def test_two_keys_in_one_request_are_refused(counts, shared_server):
    item = counts.new_item()
    headers = [("Idempotency-Key", new_key()), ("Idempotency-Key", new_key())]
    assert_bad_request(shared_server.ask("POST", action(item, "increase"), headers=headers))
    assert counts.value(item) == 0


def test_a_key_on_a_read_is_not_looked_at(counts):
    item, key = counts.new_item(), new_key()
    assert counts.get(item, key=key).json()["currentValue"] == 0
    counts.increase(item)
    answer = counts.get(item, key=key)
    assert answer.json()["currentValue"] == 1
    assert answer.header("idempotent-replayed") is None


def test_keyed_and_unkeyed_changes_of_one_burst_are_all_exact(counts, shared_server):
    item, key = counts.new_item(), new_key()
    requests = [increase_request(item, 10, key)] * 20 + [increase_request(item, 1)] * 60
    requests += [increase_request(item, 100, new_key()) for _ in range(20)]
    answers = ask_all((shared_server.port, request) for request in requests)
    assert {answer.status for answer in answers} == {200}
    assert_one_effect(answers[:20])
    assert counts.value(item) == 10 + 60 + 2000


def test_one_key_at_the_same_moment_has_one_effect(counts, shared_server):
    rounds, item = 10, counts.new_item()
    for number in range(rounds):
        key = new_key()
        answers = ask_all((shared_server.port, increase_request(item, key=key)) for _ in range(20))
        assert_one_effect(answers)
        assert answers[0].json()["value"] == number + 1
    assert counts.value(item) == rounds


def test_one_key_at_the_same_moment_on_two_processes_has_one_effect(serve, client, postgres_store):
    servers = [serve(postgres_store), serve(postgres_store)]
    counts = client(servers[0])
    rounds, item = 20, counts.new_item()
    for number in range(rounds):
        request = increase_request(item, key=new_key())
        answers = ask_all((servers[turn % 2].port, request) for turn in range(20))
        assert_one_effect(answers)
        assert answers[0].json()["value"] == number + 1
    assert counts.value(item) == rounds


def test_one_create_at_the_same_moment_on_two_processes_has_one_effect(serve, client, postgres_store):
    servers = [serve(postgres_store), serve(postgres_store)]
    for _ in range(10):
        item, key = new_id(), new_key()
        request = render("POST", COLLECTION, {"itemId": item, "initialValue": 5}, {"Idempotency-Key": key})
        answers = ask_all((servers[turn % 2].port, request) for turn in range(10))
        assert answers[0].status == 201
        assert_one_effect(answers)
    assert client(servers[1]).value(item) == 5


def test_a_second_process_waits_for_the_first_to_decide(serve, client, postgres_store):
    """The first process is held between its writes and its commit; the second must not guess."""
    first = serve(postgres_store)
    item, key = client(first).new_item(), new_key()
    first.stop()
    first = serve(postgres_store, env={"QUIPU_FAILPOINTS": "commit.before=stop"})
    second = serve(postgres_store, "--deadline", "1h")
    with first.connect() as one, second.connect() as two:
        one.send(increase_request(item, key=key))
        wait_until(first.stopped, "the first process stops before its commit")
        two.send(increase_request(item, key=key))
        wait_until(lambda: second.metric("quipu_parked_commands") == 1, "the second process waits")
        assert not two.readable(0.1), "the second process answered before the first had decided"
        first.signal(signal.SIGCONT)
        answers = [one.read_answer(), two.read_answer()]
    assert_one_effect(answers)
    assert client(second).value(item) == 1


def restarted(serve, store, server, env=None):
    server.stop()
    return serve(store, env=env)


def test_a_key_survives_a_restart(serve, client, store):
    server = serve(store)
    counts = client(server)
    item, key = counts.new_item(), new_key()
    first = counts.increase(item, key=key)
    counts = client(restarted(serve, store, server))
    assert_replay(first, counts.increase(item, key=key))
    assert counts.value(item) == 1


def test_a_key_is_kept_for_24_hours_and_counts_as_absent_after(serve, client, store):
    server = serve(store)
    counts = client(server)
    item, key = counts.new_item(), new_key()
    first = counts.increase(item, key=key)

    server = restarted(serve, store, server, env={"QUIPU_TEST_CLOCK_OFFSET": "23h"})
    assert_replay(first, client(server).increase(item, key=key))

    server = restarted(serve, store, server, env={"QUIPU_TEST_CLOCK_OFFSET": "25h"})
    counts = client(server)
    again = counts.increase(item, key=key)
    assert again.header("idempotent-replayed") is None
    assert again.json()["value"] == 2
    assert_replay(again, counts.increase(item, key=key))
    assert counts.value(item) == 2


def test_an_expired_key_may_be_used_for_another_request(serve, client, store):
    server = serve(store)
    counts = client(server)
    item, key = counts.new_item(), new_key()
    counts.increase(item, 1, key=key)
    server = restarted(serve, store, server, env={"QUIPU_TEST_CLOCK_OFFSET": "25h"})
    counts = client(server)
    assert counts.increase(item, 5, key=key).json()["value"] == 6
    assert_problem(counts.increase(item, 1, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")


def test_how_long_keys_are_kept_can_be_configured(serve, client, store):
    server = serve(store, "--idempotency-ttl", "1h")
    item, key = client(server).new_item(), new_key()
    client(server).increase(item, key=key)
    server.stop()
    later = serve(store, "--idempotency-ttl", "1h", env={"QUIPU_TEST_CLOCK_OFFSET": "61m"})
    assert client(later).increase(item, key=key).json()["value"] == 2


@pytest.mark.parametrize("failpoint, applied", [("commit.before", False), ("commit.after", True)])
def test_a_key_tells_what_became_of_a_change_that_a_crash_cut_off(serve, client, store, failpoint, applied):
    server = serve(store)
    item, key = client(server).new_item(), new_key()
    doomed = restarted(serve, store, server, env={"QUIPU_FAILPOINTS": f"{failpoint}=kill"})
    with doomed.connect() as connection:
        with pytest.raises(ConnectionLost):
            connection.send(increase_request(item, key=key))
            connection.read_answer()
    doomed.expect_to_be_killed()

    counts = client(serve(store))
    assert counts.value(item) == (1 if applied else 0)
    answer = counts.increase(item, key=key)
    assert (answer.status, answer.json()["value"]) == (200, 1)
    assert answer.header("idempotent-replayed") == ("true" if applied else None)
    assert counts.value(item) == 1


def send_wave(server, item, keys):
    """A burst to a server that may end in the middle of it; returns how many changes were acknowledged."""
    acknowledged = 0
    with contextlib.ExitStack() as stack:
        connections = []
        with contextlib.suppress(ConnectionError):
            for key in keys:
                connections.append(stack.enter_context(server.connect()))
                connections[-1].try_send(increase_request(item, key=key))
        for connection in connections:
            with contextlib.suppress(ConnectionLost):
                acknowledged += connection.read_answer().status == 200
    return acknowledged


@pytest.mark.parametrize("failpoint", ["commit.before", "commit.after"])
def test_a_crash_in_the_middle_of_a_burst_leaves_whole_changes(serve, client, store, failpoint):
    server = serve(store)
    item, waves = client(server).new_item(), [[new_key() for _ in range(10)] for _ in range(3)]
    doomed = restarted(serve, store, server, env={"QUIPU_FAILPOINTS": f"{failpoint}=kill@3"})
    acknowledged = 0
    for wave in waves:  # every wave is at least one commit
        if doomed.running:
            acknowledged += send_wave(doomed, item, wave)
    doomed.expect_to_be_killed()

    keys = [key for wave in waves for key in wave]
    counts = client(serve(store))
    assert acknowledged <= counts.value(item) <= len(keys)
    for key in keys:
        assert counts.increase(item, key=key).status == 200
    assert counts.value(item) == len(keys)


def test_the_record_route_and_the_action_route_do_not_share_keys(counts):
    item, key = counts.new_item(5), new_key()
    assert counts.ask("DELETE", record(item), key=key).status == 204
    assert_problem(counts.increase(item, key=key), 404, "COUNT_NOT_FOUND")

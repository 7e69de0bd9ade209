"""Another session holds a row's lock: only that row's requests wait, and never past their deadline."""

import signal
import time

from harness.counts import action, increase_request, new_key
from harness.http import render
from harness.problems import assert_problem
from harness.waiting import wait_until

# No request is given up where its lock stays: what is answered was answered beside it.
PATIENT = ["--deadline", "1h"]


def increase_all(counts, items, rounds):
    """Increases every item that often, one request after the other."""
    for _ in range(rounds):
        for item in items:
            answer = counts.increase(item)
            assert answer.status == 200, answer


def test_other_items_are_answered_while_one_is_locked_and_the_locked_one_when_it_is_free(
    serve, client, database, postgres_store
):
    server = serve(postgres_store, *PATIENT)
    counts = client(server)
    hot, others = counts.new_item(), [counts.new_item() for _ in range(20)]
    waiting = [server.connect() for _ in range(10)]
    with database.locked_row(hot) as release:
        for connection in waiting:
            connection.send(increase_request(hot))
        increase_all(counts, others, rounds=10)
        assert not any(connection.readable(0) for connection in waiting), "answered while the row was locked"
        wait_until(lambda: server.metric("quipu_parked_commands") == 10, "all of them are parked")
        release()
        answers = [connection.read_answer() for connection in waiting]
    assert sorted(answer.json()["value"] for answer in answers) == list(range(1, 11))
    assert [counts.value(item) for item in others] == [10] * len(others)
    for connection in waiting:
        connection.close()


def test_reads_of_a_locked_row_do_not_wait(serve, client, database, postgres_store):
    """They are answered while the lock is there."""
    counts = client(serve(postgres_store, *PATIENT))
    item = counts.new_item(3)
    with database.locked_row(item):
        assert counts.value(item) == 3
        assert counts.list(item).json()[0]["currentValue"] == 3


def test_at_its_deadline_a_request_for_a_locked_row_is_refused_and_changes_nothing(
    serve, client, database, postgres_store
):
    """The lock outlasts them, so that nothing but their deadline answers them."""
    counts = client(serve(postgres_store))
    server = serve(postgres_store, "--deadline", "500ms")
    item, key = counts.new_item(), new_key()
    with database.locked_row(item):
        connections = [server.connect() for _ in range(4)]
        start = time.monotonic()
        for connection, request in zip(
            connections,
            [
                increase_request(item),
                increase_request(item, key=key),
                render("POST", action(item, "reset")),
                render("DELETE", f"/api/v1/internal/counts/{item}"),
            ],
        ):
            connection.send(request)
        for connection in connections:
            assert_problem(connection.read_answer(), 503, "OVERLOADED")
            connection.close()
        assert time.monotonic() - start >= 0.5
    assert counts.value(item) == 0
    answer = counts.increase(item, key=key)
    assert (answer.json()["value"], answer.header("idempotent-replayed")) == (1, None), "a 503 is not stored"


def test_changes_of_a_row_that_was_locked_keep_their_order(serve, client, database, postgres_store):
    server = serve(postgres_store, *PATIENT)
    item = client(server).new_item()
    verbs = [("increase", 5), ("reset", None), ("increase", 7), ("decrease", 2), ("increase", 1)]
    connections = []
    with database.locked_row(item) as release:
        for number, (verb, amount) in enumerate(verbs, start=1):
            connections.append(server.connect())
            connections[-1].send(render("POST", action(item, verb), {"amount": amount} if amount else None))
            wait_until(
                lambda goal=number: server.metric("quipu_parked_commands") == goal,
                "the request is parked before the next is sent",
            )
        release()
        values = [connection.read_answer().json()["value"] for connection in connections]
    assert values == [5, 0, 7, 5, 6]
    for connection in connections:
        connection.close()


def test_a_process_that_hangs_before_its_commit_stops_only_its_rows(serve, client, postgres_store):
    first = serve(postgres_store)
    counts = client(first)
    item, other = counts.new_item(), counts.new_item()
    first.stop()
    hung = serve(postgres_store, env={"QUIPU_FAILPOINTS": "commit.before=stop"})
    second, hasty = serve(postgres_store, *PATIENT), serve(postgres_store, "--deadline", "300ms")
    with hung.connect() as connection:
        connection.send(increase_request(item, key="of-a-process-that-hangs"))
        wait_until(hung.stopped, "the process stops before its commit")
        counts = client(second)
        increase_all(counts, [other], rounds=20)
        assert_problem(client(hasty).increase(item), 503, "OVERLOADED")
        hung.signal(signal.SIGCONT)
        assert connection.read_answer().json()["value"] == 1
        assert counts.increase(item).json()["value"] == 2


def test_parked_commands_are_gone_from_the_metrics_when_they_are_done(serve, client, database, postgres_store):
    server = serve(postgres_store, *PATIENT)
    item = client(server).new_item()
    with database.locked_row(item) as release, server.connect() as connection:
        connection.send(increase_request(item))
        wait_until(lambda: server.metric("quipu_parked_commands") == 1, "the request is parked")
        release()
        assert connection.read_answer().status == 200
    wait_until(lambda: server.metric("quipu_parked_commands") == 0, "nothing is parked")

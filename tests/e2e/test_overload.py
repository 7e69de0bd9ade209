"""A full lane refuses at once instead of letting requests pile up."""

import contextlib
import sqlite3

from harness.counts import increase_request
from harness.problems import assert_problem
from harness.waiting import wait_until

DEPTH = 4
REQUESTS = 64
# No deadline refuses a request. On one loop a request is refused or waits before /metrics is answered.
OPTIONS = ["--lane-depth", DEPTH, "--lanes", "1", "--loops", "1", "--deadline", "1h"]


def crowd(server, item):
    connections = []
    for _ in range(REQUESTS):
        connections.append(server.connect())
        connections[-1].send(increase_request(item))
    return connections


def answered_while_locked(server, connections):
    """Waits until every request waits or is answered. Returns the answers, and the connections that still wait."""

    def settled():
        """The connections that have an answer, once all others wait."""
        answered = [connection for connection in connections if connection.readable(0)]
        waiting = server.metric("quipu_http_requests_in_flight") - 1  # the one that asks for it
        return answered if answered and len(answered) + waiting == REQUESTS else None

    answered = wait_until(settled, "every request waits or is answered")
    return [connection.read_answer() for connection in answered], [one for one in connections if one not in answered]


def test_a_full_lane_refuses_at_once_while_a_row_is_locked(serve, client, database, postgres_store):
    """The excess is refused while the row is locked, the rest answered when it is free, and the sum is exact."""
    server = serve(postgres_store, *OPTIONS)
    counts = client(server)
    item = counts.new_item()
    with database.locked_row(item) as release:
        connections = crowd(server, item)
        refused, waiting = answered_while_locked(server, connections)
        assert refused, "nothing was refused while the row was locked"
        for answer in refused:
            assert_problem(answer, 503, "OVERLOADED")
        assert server.ask("GET", "/healthz").status == 200
        release()
        answers = [connection.read_answer() for connection in waiting]
    # what still waited in the lane may have been refused when it met those that wait for the row
    for answer in answers:
        if answer.status != 200:
            assert_problem(answer, 503, "OVERLOADED")
    changed = [answer.status for answer in answers].count(200)
    assert changed >= DEPTH * 3 // 4, "one key has three quarters of a lane"
    assert counts.value(item) == changed
    for connection in connections:
        connection.close()


def test_a_full_lane_refuses_at_once_while_the_file_is_locked(serve, client, sqlite_store):
    """A program that holds the file is no neighbour Quipu expects: what waits for it may be given up early."""
    server = serve(sqlite_store, *OPTIONS)
    counts = client(server)
    item = counts.new_item()
    with contextlib.closing(sqlite3.connect(sqlite_store.file(), isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("BEGIN IMMEDIATE")
        connections = crowd(server, item)
        refused, waiting = answered_while_locked(server, connections)
        assert "OVERLOADED" in {answer.code for answer in refused}
        other.execute("ROLLBACK")
        answers = refused + [connection.read_answer() for connection in waiting]
    for answer in answers:
        if answer.status != 200:
            assert answer.code in ("OVERLOADED", "STORE_UNAVAILABLE"), answer
            assert_problem(answer, 503, answer.code)
    assert counts.value(item) == [answer.status for answer in answers].count(200)
    for connection in connections:
        connection.close()

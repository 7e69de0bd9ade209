"""Absolute deadlines for head and body, idle connections, the cap on connections, clients that vanish."""

import time

import pytest

from harness.counts import action, increase_request
from harness.http import Connection, ConnectionLost, ask_all, dial, render
from harness.problems import assert_problem
from harness.waiting import HANG_S, wait_until


NEVER = "1h"  # for the deadlines that a test is not about


def drip(connection, data, pause=0.02):
    """Sends a byte at a time, each in good time, until the server has had enough."""
    for byte in data:
        if connection.readable(pause):
            return
        connection.try_send(bytes([byte]))
    raise AssertionError("the server read all of it")


def test_a_slow_head_is_cut_off_at_its_deadline_however_steadily_it_drips(serve, sqlite_store):
    server = serve(sqlite_store, "--head-timeout", "300ms", "--body-timeout", NEVER, "--idle-timeout", NEVER)
    start = time.monotonic()
    with server.connect() as connection:
        drip(connection, render("GET", "/healthz", headers={"X-Long": "x" * 1000}))
        assert time.monotonic() - start >= 0.3
        assert_problem(connection.read_answer(), 408, "REQUEST_TIMEOUT")
        connection.assert_closed()


def test_a_slow_body_is_cut_off_at_its_deadline_however_steadily_it_drips(serve, client, sqlite_store):
    server = serve(sqlite_store, "--head-timeout", NEVER, "--body-timeout", "300ms", "--idle-timeout", NEVER)
    item = client(server).new_item()
    with server.connect() as connection:
        body = b'{"amount":1' + b" " * 1000 + b"}"
        request = render("POST", action(item, "increase"), body)
        start = time.monotonic()
        connection.send(request[: -len(body)])
        drip(connection, body)
        assert time.monotonic() - start >= 0.3
        assert_problem(connection.read_answer(), 408, "REQUEST_TIMEOUT")
        connection.assert_closed()
    assert client(server).value(item) == 0


def test_a_slow_head_after_a_good_request_is_cut_off_too(serve, sqlite_store):
    server = serve(sqlite_store, "--head-timeout", "300ms", "--idle-timeout", NEVER)
    with server.connect() as connection:
        assert connection.ask("GET", "/healthz").status == 200
        drip(connection, render("GET", "/healthz", headers={"X-Long": "x" * 1000}))
        assert_problem(connection.read_answer(), 408, "REQUEST_TIMEOUT")
        connection.assert_closed()


def test_an_idle_connection_is_closed_without_a_word(serve, sqlite_store):
    server = serve(sqlite_store, "--head-timeout", NEVER, "--idle-timeout", "3s")  # longer than a client waits for a core
    with server.connect() as connection:
        start = time.monotonic()
        assert connection.ask("GET", "/healthz").status == 200
        connection.assert_closed(timeout=HANG_S)
        assert time.monotonic() - start >= 3


def test_a_long_answer_that_is_read_slowly_arrives_complete(serve, sqlite_store):
    """However long it takes: this client needs longer for one answer than the idle timeout."""
    server = serve(sqlite_store, "--idle-timeout", "3s")  # longer than a client waits for a core
    with server.connect() as connection:
        length = len(connection.ask("GET", "/openapi.json").body)
    left = 3 * length
    with dial(server.port, receive_buffer=4096) as connection:
        connection.sendall(render("GET", "/openapi.json") * 3)
        while left > 0:
            piece = connection.recv(length // 45)
            assert piece, f"{left} bytes never came"
            left -= len(piece)
            time.sleep(0.1)  # the slowness of this client


def test_a_connection_that_never_says_anything_is_closed(serve, sqlite_store):
    server = serve(sqlite_store, "--head-timeout", "300ms", "--idle-timeout", "300ms")
    with server.connect() as connection:
        with pytest.raises(ConnectionLost):
            assert connection.read_answer().status == 408
            connection.read_answer()


def test_other_clients_do_not_feel_slow_ones(serve, client, sqlite_store):
    """On the one loop that has the slow ones too, which nothing but their end would free."""
    server = serve(sqlite_store, "--loops", "1", "--head-timeout", NEVER, "--idle-timeout", NEVER)
    counts = client(server)
    item = counts.new_item()
    slow = [server.connect() for _ in range(50)]
    for connection in slow:
        connection.send(b"POST /api/v1/cou")
    assert [counts.increase(item).json()["value"] for _ in range(50)] == list(range(1, 51))
    assert not any(connection.readable(0) for connection in slow), "a slow one was cut off"
    for connection in slow:
        connection.close()


def served(port):
    """Whether a new connection gets an answer of 200, and not a refusal or an end."""
    try:
        with Connection(port, timeout=HANG_S) as connection:
            return connection.ask("GET", "/healthz").status == 200
    except (ConnectionLost, ConnectionError):
        return False


def nothing_unread(port):
    """Whether the server has read everything that its connections have received, as the kernel tells."""
    with open("/proc/net/tcp") as table:
        sockets = [line.split() for line in list(table)[1:]]
    ours = [entry for entry in sockets if int(entry[1].split(":")[1], 16) == port and entry[3] == "01"]
    return all(int(entry[4].split(":")[1], 16) == 0 for entry in ours)


def test_connections_past_the_cap_are_not_served_while_all_others_are_worked_on(serve, client, database, postgres_store):
    server = serve(postgres_store, "--max-connections", "10", "--deadline", "1h")
    item = client(server).new_item()
    wait_until(lambda: server.metric("quipu_http_connections") <= 2, "only its client and this look are connected")
    with database.locked_row(item) as release:
        held = [server.connect() for _ in range(10)]
        for connection in held:
            connection.send(increase_request(item))
        wait_until(lambda: nothing_unread(server.port), "all of them are worked on")
        wait_until(lambda: not served(server.port), "no place is left")
        release()
        for connection in held:
            assert connection.read_answer().status == 200, "who is in stays in"
    assert served(server.port), "one that is idle makes room"
    for connection in held:
        connection.close()


def test_a_thousand_connections_at_once_are_all_served(serve, client, store):
    server = serve(store, "--max-connections", "2000", "--deadline", "1h")
    counts = client(server)
    item = counts.new_item()
    answers = ask_all((server.port, increase_request(item)) for _ in range(1000))
    assert {answer.status for answer in answers} == {200}
    assert sorted(answer.json()["value"] for answer in answers) == list(range(1, 1001))
    assert counts.value(item) == 1000


def test_a_client_that_vanishes_does_not_hurt_the_batch(serve, client, store):
    server = serve(store)
    counts = client(server)
    item = counts.new_item()
    request = increase_request(item)
    gone = half = 0
    for turn in range(10):
        staying = []
        for number in range(30):
            connection = server.connect()
            if number % 3 == 0:
                connection.send(request)
                connection.abort()
                gone += 1
            elif number % 3 == 1:
                connection.send(request[: 1 + (turn * 30 + number) % (len(request) - 1)])
                connection.abort()
                half += 1
            else:
                connection.send(request)
                staying.append(connection)
        for connection in staying:
            assert connection.read_answer().status == 200
            connection.close()
    assert gone == half == 100
    wait_until(lambda: server.metric("quipu_http_requests_in_flight") <= 1, "everything is answered or dropped")
    value = counts.value(item)
    assert 100 <= value <= 100 + gone, "half a request was run, or a whole one lost"
    assert counts.increase(item).json()["value"] == value + 1

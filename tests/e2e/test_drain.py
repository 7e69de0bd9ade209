"""SIGTERM: every request that the server took gets its answer, and it ends with 0."""

import signal
import threading

import pytest

from harness.counts import increase_request
from harness.http import Connection, ConnectionLost
from harness.load import Load
from harness.problems import assert_problem
from harness.waiting import wait_until

LATE = 300  # more than the server accepts at once


def refuses_connections(port):
    """Whether the listener is gone. A connection that is still accepted is closed again."""
    try:
        Connection(port).close()
    except ConnectionError:
        return True
    return False


def test_requests_under_way_are_answered_before_the_end(serve, client, database, postgres_store):
    server = serve(postgres_store, "--deadline", "1h")
    item = client(server).new_item()
    with database.locked_row(item) as release:
        connections = [server.connect() for _ in range(50)]
        for connection in connections:
            connection.send(increase_request(item))
        wait_until(lambda: server.metric("quipu_http_requests_in_flight") >= 51, "all are under way")
        server.signal(signal.SIGTERM)
        wait_until(lambda: refuses_connections(server.port), "the listener is closed")
        assert server.running
        release()
        answers = [connection.read_answer() for connection in connections]
    assert sorted(answer.json()["value"] for answer in answers) == list(range(1, 51))
    for connection in connections:
        connection.assert_closed()
        connection.close()
    assert server.wait_exit() == 0
    assert database.value(item) == 50


@pytest.mark.parametrize("open_before", [0, 20])
def test_requests_that_arrived_before_the_signal_are_answered(serve, client, store, open_before):
    """The process is held, requests arrive on open and on new connections, then it is told to end and let go."""
    server = serve(store)
    counts = client(server)
    item = counts.new_item()
    counts.close()
    wait_until(lambda: server.metric("quipu_http_connections") == 1, "only the connection that asks is open")
    early = [server.connect() for _ in range(open_before)]
    for connection in early:
        assert connection.ask("GET", "/healthz").status == 200
    with server.frozen():
        late = [server.connect() for _ in range(LATE)]
        for connection in early + late:
            connection.send(increase_request(item))
        server.signal(signal.SIGTERM)
    answers = [connection.read_answer() for connection in early + late]
    for connection in early + late:
        connection.close()
    assert server.wait_exit() == 0
    assert {answer.status for answer in answers} == {200}
    assert client(serve(store)).value(item) == LATE + open_before


def test_a_drain_under_load_loses_no_acknowledged_change_and_runs_nothing_unanswered(serve, client, store):
    server = serve(store)
    counts = client(server)
    items = [counts.new_item() for _ in range(10)]
    counts.close()
    with Load(server.port, items, threads=8, keyed=False) as load:
        load.wait_acknowledged(200)
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        load.join()
    load.assert_nothing_unexpected()
    counts = client(serve(store))
    assert sum(counts.value(item) for item in items) == len(load.acknowledged)


def test_idle_connections_do_not_hold_up_the_end(serve, store):
    server = serve(store, "--drain-timeout", "1h", "--idle-timeout", "1h")
    idle = [server.connect() for _ in range(20)]
    for connection in idle[:10]:
        assert connection.ask("GET", "/healthz").status == 200
    server.stop()
    for connection in idle:
        connection.assert_closed()
        connection.close()


def test_what_cannot_be_finished_in_time_gets_503_and_the_process_still_ends_with_0(
    serve, client, database, postgres_store
):
    server = serve(postgres_store, "--drain-timeout", "100ms", "--deadline", "1h")
    item = client(server).new_item()
    with database.locked_row(item), server.connect() as connection:
        connection.send(increase_request(item))
        wait_until(lambda: server.metric("quipu_http_requests_in_flight") >= 2, "the request is under way")
        server.signal(signal.SIGTERM)
        answer = connection.read_answer()
        assert_problem(answer, 503, answer.code)
        connection.close()
        assert server.wait_exit() == 0
    assert database.value(item) == 0


def test_while_it_drains_it_says_so(serve, client, database, postgres_store):
    server = serve(postgres_store, "--deadline", "1h")
    item = client(server).new_item()
    with database.locked_row(item) as release, server.connect() as held, server.connect() as watcher:
        assert watcher.ask("GET", "/readyz").status == 200
        held.send(increase_request(item))
        wait_until(lambda: server.metric("quipu_http_requests_in_flight") >= 2, "the request is under way")
        watcher.send(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n")  # a request begun is a request to be answered
        watcher.wait_read_by_server()
        server.signal(signal.SIGTERM)
        wait_until(lambda: refuses_connections(server.port), "the listener is closed")
        watcher.send(b"\r\n")
        answer = watcher.read_answer()
        assert (answer.status, answer.json()["status"]) == (503, "draining")
        release()
        assert held.read_answer().status == 200
    assert server.wait_exit() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_start_after_the_end_finds_the_folder_free(serve, sqlite_store, number):
    server = serve(sqlite_store)
    server.signal(number)
    assert server.wait_exit() == 0
    assert serve(sqlite_store).ready()


def test_a_library_that_does_not_end_does_not_keep_the_process(serve, client, sqlite_store):
    server = serve(sqlite_store, env={"QUIPU_FAILPOINTS": "main.release=off"})
    counts = client(server)
    item = counts.new_item()
    assert counts.increase(item).json()["value"] == 1
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    assert "exiting anyway" in server.log_text()
    assert client(serve(sqlite_store)).value(item) == 1


def test_a_request_after_the_end_finds_nobody(serve, store):
    server = serve(store)
    with server.connect() as connection:
        assert connection.ask("GET", "/healthz").status == 200
        server.stop()
        with pytest.raises(ConnectionLost):
            connection.ask("GET", "/healthz")
    assert refuses_connections(server.port)


class Balancer(threading.Thread):
    """Sends one request after another, each on a connection of its own, until /readyz tells it to go elsewhere."""

    def __init__(self, server, item):
        super().__init__()
        self._server = server
        self._item = item
        self.increased = 0
        self.failures = []

    def run(self):
        try:
            while self._server.ready():
                answer = self._server.ask("POST", f"/api/v1/counts/{self._item}/increase")
                assert answer.status == 200, answer
                self.increased += 1
        except Exception as error:
            self.failures.append(error)


def test_a_balancer_that_watches_readiness_meets_no_refused_connection(serve, client, store):
    """The delay is longer than any test: it ends when all balancers have gone, as it would after a while."""
    server = serve(store, "--drain-delay", "1h")
    counts = client(server)
    item = counts.new_item()
    counts.close()
    balancers = [Balancer(server, item) for _ in range(8)]
    for balancer in balancers:
        balancer.start()
    wait_until(lambda: all(balancer.increased > 0 for balancer in balancers), "all balancers are at work")
    server.signal(signal.SIGTERM)
    for balancer in balancers:
        balancer.join()
    server.stop()
    assert [balancer.failures for balancer in balancers] == [[] for _ in balancers]
    assert client(serve(store)).value(item) == sum(balancer.increased for balancer in balancers)


def test_during_the_delay_everything_but_readiness_is_served(serve, client, store):
    server = serve(store, "--drain-delay", "1h")
    counts = client(server)
    item = counts.new_item()
    server.signal(signal.SIGTERM)
    wait_until(lambda: not server.ready(), "it is not ready any more")
    answer = server.ask("GET", "/readyz")
    assert (answer.status, answer.json()["status"]) == (503, "draining")
    assert server.ask("GET", "/healthz").status == 200
    assert [counts.increase(item).json()["value"] for _ in range(3)] == [1, 2, 3]
    server.stop()
    assert refuses_connections(server.port)


def test_after_the_delay_the_server_ends_by_itself(serve, store):
    server = serve(store, "--drain-delay", "100ms")
    server.stop()
    assert "for another 100 ms" in server.log_text()


def test_another_signal_ends_the_wait_for_requests(serve, client, database, postgres_store):
    server = serve(postgres_store, "--drain-timeout", "1h", "--deadline", "1h")
    item = client(server).new_item()
    with database.locked_row(item), server.connect() as connection:
        connection.send(increase_request(item))
        wait_until(lambda: server.metric("quipu_http_requests_in_flight") >= 2, "the request is under way")
        server.signal(signal.SIGTERM)
        wait_until(lambda: refuses_connections(server.port), "the listener is closed")
        server.signal(signal.SIGTERM)
        answer = connection.read_answer()
        assert_problem(answer, 503, answer.code)
        connection.close()
        assert server.wait_exit() == 0
    assert database.value(item) == 0

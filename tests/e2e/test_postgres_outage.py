"""PostgreSQL goes away under load: a clear 503, recovery by itself, nothing lost, nothing twice."""

import pytest

from engines import shared
from harness.available import available
from harness.counts import new_id
from harness.load import Load
from harness.problems import assert_problem
from harness.stores import PostgresStore
from harness.waiting import wait_until


KEYED = pytest.mark.parametrize("keyed", [True, pytest.param(False, marks=pytest.mark.full)], ids=["keyed", "unkeyed"])


@pytest.fixture(scope="module")
def outage_postgres():
    """For all tests of this file; each has a database of its own. Skips where there is no PostgreSQL."""
    with available(shared.own_postgres) as server:
        yield server


@pytest.fixture
def own_postgres(outage_postgres):
    if outage_postgres.pid is None:  # a test has left it stopped
        outage_postgres.start()
    return outage_postgres


@pytest.fixture
def store(own_postgres, tmp_path):
    return PostgresStore(own_postgres.create_database(), tmp_path)


def dependency(server):
    """Status of the answer and of its one dependency, as /readyz tells them."""
    answer = server.ask("GET", "/readyz")
    return answer.status, answer.json()["status"], answer.json()["dependencies"]


DOWN = (503, "unavailable", [{"name": "counts-store", "engine": "postgres", "status": "down"}])
UP = (200, "ready", [{"name": "counts-store", "engine": "postgres", "status": "up"}])


def test_a_process_that_nobody_uses_notices_by_itself(serve, own_postgres, store):
    server = serve(store)
    assert dependency(server) == UP
    own_postgres.stop("immediate")
    wait_until(lambda: dependency(server) == DOWN, "/readyz names the store that is down")
    own_postgres.start()
    wait_until(lambda: dependency(server) == UP, "it is found again")


def test_a_connection_that_the_server_closes_alone_is_no_outage(serve, client, own_postgres, store):
    server = serve(store)
    counts = client(server)
    item = counts.new_item()
    for _ in range(3):
        store.database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                             " WHERE datname = current_database() AND pid <> pg_backend_pid()")
        wait_until(lambda: len(store.database.query("SELECT 1 FROM pg_stat_activity WHERE datname = current_database()")) > 1,
                   "the process connects again")
    assert dependency(server) == UP
    assert counts.get(item).status == 200


@pytest.mark.parametrize("mode", ["fast", "immediate"])
@KEYED
def test_postgres_stopped_under_load_is_a_503_and_recovery_loses_nothing(
    serve, client, own_postgres, store, mode, keyed
):
    server = serve(store)
    counts = client(server)
    items = [counts.new_item() for _ in range(10)]
    with Load(server.port, items, threads=8, keyed=keyed) as load:
        load.wait_acknowledged(100)
        own_postgres.stop(mode)
        load.wait_refused(20)
        wait_until(lambda: dependency(server) == DOWN, "/readyz names the store that is down")
        assert server.ask("GET", "/healthz").status == 200
        assert_problem(counts.get(items[0]), 503, "STORE_UNAVAILABLE")
        own_postgres.start()
        wait_until(lambda: dependency(server) == UP, "/readyz says ready again")
        load.wait_acknowledged(100)
    load.assert_settled(counts)
    assert server.metric("quipu_store_errors_total") >= 1


@KEYED
def test_a_postgres_that_falls_silent_under_load_is_a_503_and_every_answer_proves_true(
    serve, client, own_postgres, store, keyed
):
    """Neither closed nor answering, as behind a dead network: what was sent may still be committed when it wakes up."""
    server = serve(store)
    counts = client(server)
    items = [counts.new_item() for _ in range(10)]
    with Load(server.port, items, threads=8, keyed=keyed) as load:
        load.wait_acknowledged(100)
        with own_postgres.frozen():
            load.wait_refused(8)
            wait_until(lambda: dependency(server) == DOWN, "/readyz names the store that is down")
        wait_until(lambda: dependency(server) == UP, "/readyz says ready again")
        load.wait_acknowledged(100)
    load.assert_settled(counts)


@KEYED
def test_sessions_terminated_under_load_lose_nothing(serve, client, store, keyed):
    server = serve(store)
    counts = client(server)
    items = [counts.new_item() for _ in range(10)]
    terminated = 0
    with Load(server.port, items, threads=8, keyed=keyed) as load:
        for _ in range(10):
            load.wait_acknowledged(20)
            terminated += store.database.terminate_sessions()
        load.wait_acknowledged(20)
    assert terminated >= 10
    load.assert_settled(counts)


def test_a_start_with_postgres_down_waits_for_it_and_says_so(serve, client, own_postgres, store):
    own_postgres.stop()
    server = serve(store, ready=False)
    wait_until(lambda: dependency(server) == DOWN, "/readyz names the store that is down")
    assert server.ask("GET", "/healthz").status == 200
    counts = client(server)
    assert_problem(counts.increase(new_id()), 503, "STORE_UNAVAILABLE")
    assert_problem(counts.get(new_id()), 503, "STORE_UNAVAILABLE")
    own_postgres.start()
    wait_until(lambda: dependency(server) == UP, "/readyz says ready")
    item = counts.new_item()
    assert counts.increase(item).json()["value"] == 1


def test_readyz_gives_no_address_away(serve, own_postgres, store):
    own_postgres.stop()
    server = serve(store, ready=False)
    body = server.ask("GET", "/readyz").body.decode()
    assert "127.0.0.1" not in body and str(own_postgres.port) not in body and "postgres:" not in body

"""The primary of a synchronous pair dies under load and the standby is promoted. The URL names both servers, and nobody
tells Quipu: nothing acknowledged is lost, nothing happens twice."""

import time

import pytest

from engines.postgres_pair import Pair
from harness.available import available
from harness.counts import increase_request, new_key
from harness.load import Load
from harness.problems import assert_problem
from harness.stores import PostgresStore
from harness.waiting import wait_until


@pytest.fixture
def pair():
    with available(Pair) as servers:
        yield servers


@pytest.fixture
def store(pair, tmp_path):
    return PostgresStore(pair.create_database(), tmp_path)


@pytest.fixture
def server(serve, store):
    return serve(store)


@pytest.fixture
def counts(server, client):
    return client(server)


def crash(primary):
    primary.kill()


def stop_at_once(primary):
    primary.stop("immediate")


@pytest.mark.parametrize("end", [crash, stop_at_once])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
def test_the_standby_takes_over_and_nothing_acknowledged_is_lost(pair, server, counts, end, keyed):
    items = [counts.new_item() for _ in range(10)]
    with Load(server.port, items, threads=8, keyed=keyed) as load:
        load.wait_acknowledged(200)
        end(pair.primary)
        load.wait_refused(8)
        pair.standby.promote()
        promoted = time.monotonic()
        load.wait_acknowledged(1)
        print(f"served again {time.monotonic() - promoted:.2f} s after the standby was promoted")
        load.wait_acknowledged(200)
    load.assert_settled(counts)


def test_a_primary_that_falls_silent_is_replaced_too(pair, server, counts):
    """As after a dead network: the old primary neither answers nor closes its connections. It never comes back."""
    items = [counts.new_item() for _ in range(10)]
    with Load(server.port, items, threads=8) as load:
        load.wait_acknowledged(200)
        with pair.primary.frozen():
            load.wait_refused(8)
            pair.standby.promote()
            load.wait_acknowledged(200)
            pair.primary.kill()
    load.assert_settled(counts)


def test_a_start_finds_the_new_primary_behind_a_silent_host(pair, serve, store):
    """So does the connection that carries announcements between processes, which connects in its own way."""
    with pair.primary.frozen():
        pair.standby.promote()
        server = serve(store, "--roles", "entitlements,notifications")
        wait_until(lambda: "announcements reach other processes again" in server.log_text(), "announcements go on")
        pair.primary.kill()


def test_a_standby_alone_is_not_used(pair, serve, store):
    """Before it is promoted, there is no store: 503, and the log says why."""
    pair.primary.stop("immediate")
    server = serve(store, ready=False)
    wait_until(lambda: "session is read-only" in server.log_text(), "the log says why the standby is not used")
    assert server.ask("GET", "/readyz").status == 503
    pair.standby.promote()
    wait_until(lambda: server.ask("GET", "/readyz").status == 200, "it is used once it accepts writes")


def test_while_no_standby_answers_nothing_is_acknowledged(pair, server, store, counts):
    """The server holds the commit back. The client learns that the outcome is unknown, and a retry finds out."""
    item, key = counts.new_item(), new_key()
    with pair.standby.frozen():
        assert_problem(counts.increase(item, key=key), 503, "OUTCOME_UNKNOWN")
    wait_until(lambda: counts.increase(item, key=key).status == 200, "the retry is answered")
    assert store.value(item) == 1


def test_a_commit_that_an_operator_cancels_while_it_waits_for_the_standby_is_not_acknowledged(pair, server, store, counts):
    """PostgreSQL calls it a success, with a warning. If the standby took over now, the change would be gone."""
    item = counts.new_item()
    for key in (None, new_key()):
        assert counts.increase(item).status == 200
        with pair.standby.frozen(), server.connect() as connection:
            connection.send(increase_request(item, key=key))
            wait_until(lambda: cancel_waiting(store.database), "the commit waits for the standby")
            assert_problem(connection.read_answer("POST"), 503, "OUTCOME_UNKNOWN")


def cancel_waiting(database):
    return database.query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")

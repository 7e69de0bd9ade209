"""The lock in the table: respected while another holds it, taken over when it has expired, and never left behind."""

import contextlib
import resource
import signal
import time

import pytest

from harness.http import ask_all
from harness.pots import (
    FOREIGN, assert_error, coins, new_key, new_name, request, stored_coins, stored_lock, tables_of,
)
from harness.waiting import wait_until

ROLES = ["--roles", "pots"]
PATIENT = ["--deadline", "1h"]  # no request is given up while it waits for a lock


def add_one(pot_id, key=None):
    return request("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)}, key=key)


def add_to_all(pots, pot_ids, rounds):
    """Adds to every pot that often, one request after the other."""
    for _ in range(rounds):
        for pot_id in pot_ids:
            pots.get("AddCoins", {"pot_id": pot_id, "coins": coins(bronze=1)})


def locked_by_another(serve, pots_client, store, seconds, *arguments):
    """A server and a client, a pot with 5 silver coins that another process has locked, and the tables."""
    server = serve(store, *ROLES)
    pot_id = pots_client(server).new_pot(silver=5)
    server.stop()
    tables = tables_of(store)
    server = None if store.name == "sqlite" else serve(store, *ROLES, *arguments)
    tables.lock(pot_id, seconds)
    server = server or serve(store, *ROLES, *arguments)
    return server, pots_client(server), pot_id, tables


def test_while_requests_wait_for_a_locked_pot_others_are_served(serve, pots_client, store):
    """There are more retries than the test has time for: who is answered did not wait for them."""
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, store, 3600, *PATIENT, "--pots-lock-wait", "50ms", "--pots-lock-retries", "1000000")
    others = [pots.new_pot(max_coins=10**6) for _ in range(10)]
    waiting = [server.connect() for _ in range(6)]
    for connection in waiting:
        connection.send(add_one(pot_id))
    wait_until(lambda: server.metric("quipu_parked_commands") == 6, "all are parked")
    add_to_all(pots, others, rounds=10)
    assert not any(connection.readable(0) for connection in waiting), "answered while there were retries left"
    # while they are tried again they are not parked
    wait_until(lambda: server.metric("quipu_parked_commands") == 6, "all are parked again")
    tables.unlock(pot_id)
    for connection in waiting:
        assert connection.read_answer().status == 200
        connection.close()
    assert stored_coins(tables, pot_id) == {"SILVER": 5, "GOLD": 6}


def test_a_pot_that_stays_locked_is_aborted_after_its_retries(serve, pots_client, store):
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, store, 3600, *PATIENT, "--pots-lock-wait", "50ms", "--pots-lock-retries", "10")
    key = new_key()
    start = time.monotonic()
    answer = pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1}, key=key)
    assert_error(answer, "aborted", "POT_LOCKED")
    assert time.monotonic() - start >= 0.25, "10 times 50 ms, give or take half"
    assert stored_coins(tables, pot_id) == {"SILVER": 5}
    assert stored_lock(tables, pot_id) == FOREIGN
    wait_until(lambda: server.metric("quipu_parked_commands") == 0, "nothing is parked")
    if store.name == "postgres":
        tables.unlock(pot_id)
        answer = pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1}, key=key)
        assert answer.status == 200 and answer.header("idempotent-replayed") is None, "aborted was not remembered"


def test_once_the_lock_expires_the_requests_go_through(serve, pots_client, store):
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, store, 3600, *PATIENT, "--pots-lock-retries", "1000000")
    waiting = [server.connect() for _ in range(5)]
    for connection in waiting:
        connection.send(add_one(pot_id))
    wait_until(lambda: server.metric("quipu_parked_commands") == 5, "all wait")
    tables.lock(pot_id, 0.1)
    for connection in waiting:
        assert connection.read_answer().status == 200
        connection.close()
    assert stored_coins(tables, pot_id) == {"SILVER": 5, "GOLD": 5}
    assert stored_lock(tables, pot_id) is None, "released"


def test_a_lock_that_has_expired_long_ago_is_taken_over_at_once(serve, pots_client, store):
    server, pots, pot_id, tables = locked_by_another(serve, pots_client, store, -1, "--pots-lock-retries", "0")
    assert pots.get("RemoveCoins", {"pot_id": pot_id, "coins": coins(silver=2)}) == {"coins": coins(silver=2)}
    assert stored_lock(tables, pot_id) is None


def test_a_lock_without_an_end_never_expires(serve, pots_client, store):
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, store, None, "--pots-lock-wait", "5ms", "--pots-lock-retries", "4")
    assert_error(pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1}), "aborted", "POT_LOCKED")
    assert stored_lock(tables, pot_id) == FOREIGN


def test_looking_takes_no_lock_and_waits_for_none(serve, pots_client, store):
    """The lock stays for an hour, and so would who waited for it."""
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, store, 3600, *PATIENT, "--pots-lock-retries", "1000000")
    assert pots.content(pot_id) == {"SILVER": 5}
    assert pots.get("ViewPot", {"pot_id": pot_id})["pot_id"] == pot_id
    assert stored_lock(tables, pot_id) == FOREIGN


def test_no_retries_is_aborted_at_once(serve, pots_client, store):
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, store, 3600, *PATIENT, "--pots-lock-wait", "1h", "--pots-lock-retries", "0")
    assert_error(pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1}), "aborted", "POT_LOCKED")


def test_at_the_deadline_a_waiting_request_is_unavailable(serve, pots_client, store):
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, store, 3600, "--deadline", "300ms", "--pots-lock-retries", "1000000")
    assert_error(pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1}), "unavailable", "OVERLOADED")
    assert stored_coins(tables, pot_id) == {"SILVER": 5}


@pytest.mark.parametrize("wait", ["50ms", "1h"])
def test_a_deadline_is_kept_whenever_the_next_try_is_due(serve, pots_client, postgres_store, wait):
    server, pots, pot_id, tables = locked_by_another(serve, pots_client, postgres_store, 3600, "--deadline", "300ms",
                                                     "--pots-lock-wait", wait, "--pots-lock-retries", "1000000")
    assert_error(pots.call("RemoveCoins", {"pot_id": pot_id, "count": 1}), "unavailable", "OVERLOADED")


def test_requests_that_wait_for_a_lock_do_not_hold_up_the_end(serve, pots_client, store):
    """The next try is an hour away: what ends the wait is --drain-timeout, and nobody spins until then."""
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, store, 3600, *PATIENT, "--drain-timeout", "1s", "--pots-lock-wait", "1h",
        "--pots-lock-retries", "1000000")
    with server.connect() as connection:
        connection.send(add_one(pot_id))
        wait_until(lambda: server.metric("quipu_parked_commands") == 1, "it is parked")
        used_before_s, reaped_before = server.cpu_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
        server.signal(signal.SIGTERM)
        assert connection.read_answer().status == 503
    assert server.wait_exit() == 0
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = reaped.ru_utime + reaped.ru_stime - reaped_before.ru_utime - reaped_before.ru_stime
    assert used_s - used_before_s < 0.6
    assert stored_coins(tables, pot_id) == {"SILVER": 5}


def test_requests_that_waited_together_are_served_under_one_taking_of_the_lock(serve, pots_client, postgres_store):
    server, pots, pot_id, tables = locked_by_another(
        serve, pots_client, postgres_store, 3600, *PATIENT, "--pots-lock-retries", "1000000")
    connections = [server.connect() for _ in range(30)]
    for connection in connections:
        connection.send(add_one(pot_id))
    wait_until(lambda: server.metric("quipu_parked_commands") == 30, "all are parked")
    tables.query("CREATE TABLE taken (n serial); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
                 "'BEGIN INSERT INTO taken DEFAULT VALUES; RETURN NEW; END'; CREATE TRIGGER note AFTER UPDATE ON pot "
                 f"FOR EACH ROW WHEN (NEW.lock IS NOT NULL AND NEW.lock <> '{FOREIGN}') EXECUTE FUNCTION note()")
    tables.unlock(pot_id)
    for connection in connections:
        assert connection.read_answer().status == 200
        connection.close()
    assert stored_coins(tables, pot_id) == {"SILVER": 5, "GOLD": 30}
    assert tables.query("SELECT count(*) FROM taken") == [(1,)]


def test_only_changed_kinds_are_written(serve, pots_client, postgres_store):
    server = serve(postgres_store, *ROLES)
    pots, tables = pots_client(server), tables_of(postgres_store)
    pot_id = pots.new_pot(bronze=5, silver=5, gold=5)
    versions = "SELECT denomination, xmin::text FROM coin WHERE pot_id = ? ORDER BY denomination"
    before = dict(tables.query(versions, (pot_id,)))
    pots.get("RemoveCoins", {"pot_id": pot_id, "coins": coins(silver=2)})
    after = dict(tables.query(versions, (pot_id,)))
    assert {kind for kind in before if before[kind] != after[kind]} == {10}
    pots.get("RemoveCoins", {"pot_id": pot_id, "coins": coins(silver=100)})
    pots.get("RemoveCoins", {"pot_id": pot_id, "coins": coins(silver=1)})
    assert dict(tables.query(versions, (pot_id,)))[1] == before[1]
    assert stored_coins(tables, pot_id) == {"BRONZE": 5, "GOLD": 5}


def test_a_row_that_another_transaction_holds_stops_only_its_pot(serve, pots_client, postgres_store):
    server = serve(postgres_store, *ROLES, *PATIENT, "--pots-lock-retries", "1000000")
    pots, tables = pots_client(server), tables_of(postgres_store)
    held, other = pots.new_pot(), pots.new_pot(max_coins=10**6)
    with contextlib.closing(tables.connect()) as session, server.connect() as connection:
        session.autocommit = False
        session.cursor().execute("SELECT 1 FROM pot WHERE id = %s FOR UPDATE", (held,))
        connection.send(add_one(held))
        wait_until(lambda: server.metric("quipu_parked_commands") == 1, "the request is parked")
        add_to_all(pots, [other], rounds=20)
        assert not connection.readable(0), "answered while the row was held"
        session.rollback()
        assert connection.read_answer().status == 200
    assert stored_coins(tables, held) == {"GOLD": 1}


def test_a_name_that_another_transaction_is_taking_is_waited_for(serve, pots_client, postgres_store):
    server = serve(postgres_store, *ROLES, *PATIENT, "--pots-lock-retries", "1000000")
    pots, tables = pots_client(server), tables_of(postgres_store)
    name = new_name()
    for commits, code in ((False, 200), (True, 409)):
        with contextlib.closing(tables.connect()) as session, server.connect() as connection:
            session.autocommit = False
            session.cursor().execute("INSERT INTO pot (pot_name, max_coins) VALUES (%s, 9)", (name + str(code),))
            connection.send(request("CreatePot", {"pot_name": name + str(code), "max_coins": 10}))
            wait_until(lambda: server.metric("quipu_parked_commands") == 1, "the request is parked")
            pots.new_pot()
            session.commit() if commits else session.rollback()
            assert connection.read_answer().status == code


def test_a_crash_leaves_no_lock_behind(serve, pots_client, store):
    server = serve(store, *ROLES)
    pot_id = pots_client(server).new_pot(silver=5)
    server.stop()
    doomed = serve(store, *ROLES, env={"QUIPU_FAILPOINTS": "commit.before=kill@1"})
    with doomed.connect() as connection:
        connection.send(add_one(pot_id))
        doomed.expect_to_be_killed()
    pots = pots_client(serve(store, *ROLES, "--pots-lock-retries", "0"))
    pots.get("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)})
    assert pots.content(pot_id) == {"SILVER": 5, "GOLD": 1}


@pytest.mark.parametrize("retries", ["0", "5"])
def test_many_requests_for_many_locked_pots_leave_nothing_behind(serve, pots_client, postgres_store, retries):
    server = serve(postgres_store, *ROLES, "--pots-lock-wait", "5ms", "--pots-lock-retries", retries)
    pots, tables = pots_client(server), tables_of(postgres_store)
    locked = [pots.new_pot() for _ in range(20)]
    for pot_id in locked:
        tables.lock(pot_id, 3600)
    answers = ask_all((server.port, add_one(locked[number % 20])) for number in range(200))
    assert {(answer.status, answer.json()["code"]) for answer in answers} == {(409, "aborted")}
    wait_until(lambda: server.metric("quipu_parked_commands") == 0, "nothing is parked")
    tables.query("UPDATE pot SET lock = NULL")
    answers = ask_all((server.port, add_one(locked[number % 20])) for number in range(200))
    assert {answer.status for answer in answers} == {200}
    assert tables.query("SELECT sum(coin_count) FROM coin") == [(200,)]

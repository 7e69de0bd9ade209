"""quipu verify unread: names every user whose counter differs, and repairs by telling of messages, never of numbers."""

import concurrent.futures
import contextlib
import json
import os
import sqlite3

import pytest

from harness.quipu import run
from harness.waiting import wait_until

JSON = {"Content-Type": "application/json"}
ROLES = ("--roles", "dialogs,counters")


def send(server, receiver, count=1):
    for _ in range(count):
        body = json.dumps({"receiverId": receiver, "text": "hello"}).encode()
        assert server.ask("POST", "/dialogs/send", body, {**JSON, "X-User-Id": "alice"}).status == 200


def counted(server, user):
    return server.ask("GET", f"/counters/user/{user}/UnreadMessages").json()["count"]


def verify(binary, server, *flags):
    return run(binary, "verify", "unread", *flags, "--server", f"http://127.0.0.1:{server.port}")


def damage(store, statements):
    """Changes the counters behind the program's back."""
    if store.name == "postgres":
        for statement in statements:
            store.database.query(statement)
        return
    with contextlib.closing(sqlite3.connect(store.data / "counters.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def damaged(serve, store):
    """bob lacks one message, carol lacks all, erin has one that does not exist; dave is right."""
    server = serve(store, *ROLES)
    for user in ("bob", "carol", "dave"):
        send(server, user, 3)
    for user in ("bob", "carol", "dave"):
        wait_until(lambda user=user: counted(server, user) == 3, f"the messages of {user} are counted")
    server.stop()
    now = "now()" if store.name == "postgres" else "1"
    damage(store, [
        "DELETE FROM counter_messages WHERE user_id = 'bob' AND message_id = "
        "(SELECT min(message_id) FROM counter_messages WHERE user_id = 'bob')",
        "UPDATE counters SET count = 2 WHERE user_id = 'bob'",
        "DELETE FROM counter_messages WHERE user_id = 'carol'",
        "DELETE FROM counters WHERE user_id = 'carol'",
        f"INSERT INTO counter_messages (user_id, message_id, state, event_at) VALUES ('erin', 'z', 'unread', {now})",
        "INSERT INTO counters (user_id, type, count, last_updated, version) "
        f"VALUES ('erin', 'UnreadMessages', 1, {now}, 1)",
    ])
    return serve(store, *ROLES).wait_ready()


def test_every_user_whose_counter_differs_is_named(binary, damaged):
    told = verify(binary, damaged)
    assert told.returncode == 1
    assert told.stdout.splitlines() == [
        "bob has 3 unread, but the counter says 2",
        "carol has 3 unread, but the counter says 0",
        "erin has 0 unread, but the counter says 1",
        "4 users, 3 counters differ; some may differ only because events are in transit",
    ]


def test_repair_tells_the_counters_of_messages_and_everything_is_right_after(binary, damaged):
    assert counted(damaged, "bob") == 2  # which is now in the cache
    told = verify(binary, damaged, "--repair", "--json")
    assert told.returncode == 0
    assert json.loads(told.stdout.splitlines()[-1]) == {
        "service": "unread", "checked": 4, "users": 4, "differences": 0, "repaired": 5,
    }
    assert [counted(damaged, user) for user in ("bob", "carol", "dave", "erin")] == [3, 3, 3, 0]
    again = verify(binary, damaged)
    assert (again.returncode, again.stdout) == (0, "4 users, all counters are right\n")


def test_what_cannot_be_repaired_is_told(binary, serve, sqlite_store):
    server = serve(sqlite_store, *ROLES)
    send(server, "bob")
    wait_until(lambda: counted(server, "bob") == 1, "the message is counted")
    server.stop()
    damage(sqlite_store, ["UPDATE counters SET count = 7 WHERE user_id = 'bob'"])
    told = verify(binary, serve(sqlite_store, *ROLES), "--repair")
    assert told.returncode == 1
    assert told.stdout.splitlines()[-1] == (
        "1 user, 1 counter differs after the repair; verify again, because events may be in transit")


def test_a_message_that_arrives_during_a_repair_stays_counted(binary, serve, postgres_store, tmp_path):
    """Between the two reads of a repair, a message is sent and counted. On SQLite nothing is counted meanwhile."""
    server = serve(postgres_store, *ROLES)
    send(server, "bob", 3)
    wait_until(lambda: counted(server, "bob") == 3, "the messages are counted")
    server.stop()
    damage(postgres_store, [
        "DELETE FROM counter_messages WHERE user_id = 'bob' AND message_id = "
        "(SELECT min(message_id) FROM counter_messages WHERE user_id = 'bob')",
        "UPDATE counters SET count = 2 WHERE user_id = 'bob'",
    ])
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = serve(postgres_store, *ROLES,
                   env={"QUIPU_FAILPOINTS": "counters.repair=hold", "QUIPU_FAILPOINT_GATE": str(gate)})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        told = pool.submit(verify, binary, server, "--repair")
        with open(gate, "wb"):  # as soon as the repair has read once; closing it lets it read again
            send(server, "bob")
            wait_until(lambda: counted(server, "bob") == 3, "the new message is counted")
        assert told.result().returncode == 0
    assert counted(server, "bob") == 4
    again = verify(binary, server)
    assert (again.returncode, again.stdout) == (0, "1 user, all counters are right\n")


@pytest.mark.parametrize("counters_are_in", ["postgres", "sqlite"])
def test_a_repair_that_cannot_read_the_messages_changes_nothing_and_the_next_one_works(
        serve, own_postgres, postgres_store, sqlite_store, counters_are_in):
    store = postgres_store if counters_are_in == "postgres" else sqlite_store
    messages = own_postgres.create_database()
    server = serve(store, *ROLES, "--dialogs-store", messages.url).wait_ready()
    send(server, "bob")
    wait_until(lambda: counted(server, "bob") == 1, "the message is counted")
    own_postgres.stop()
    assert repair(server, "bob").status == 503
    assert repair(server, "bob").status == 503
    own_postgres.start()
    wait_until(lambda: repair(server, "bob").status == 200, "the repair works")
    send(server, "bob")
    wait_until(lambda: counted(server, "bob") == 2, "messages are still counted")


def repair(server, user):
    return server.ask("POST", f"/operator/verify/unread/{user}/repair", b"", JSON)


def test_it_pages_through_any_number_of_users(binary, serve, sqlite_store):
    server = serve(sqlite_store, *ROLES)
    with server.connect() as connection:
        for number in range(25):
            body = json.dumps({"receiverId": f"user-{number:02}", "text": "hello"}).encode()
            assert connection.ask("POST", "/dialogs/send", body, {**JSON, "X-User-Id": "alice"}).status == 200
    wait_until(lambda: verify(binary, server).returncode == 0, "everything is counted")
    users, after = [], ""
    while after is not None:
        page = server.ask("GET", f"/operator/verify/unread?limit=4&after={after}").json()
        users.append(page["users"])
        after = page["next"]
    assert sum(users) == 25 and len(users) >= 7


def test_without_both_roles_it_says_so(binary, serve, sqlite_store):
    told = verify(binary, serve(sqlite_store, "--roles", "counts"))
    assert told.returncode == 1 and "the server does not run both dialogs and counters" in told.stderr

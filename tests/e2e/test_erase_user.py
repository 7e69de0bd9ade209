"""quipu erase-user: a person goes from every service, and nobody else's numbers change."""

import concurrent.futures
import contextlib

import pytest

from harness.counts import new_key
from harness.plans import explained, scans_of
from harness.problems import assert_bad_request, assert_problem
from harness.quipu import run
from harness.stores import open_to_read
from harness.unread import new_user
from harness.verify import verify, walk
from harness.waiting import wait_until

ALL = ("--roles", "all")
SECRET = "nobody else's business"
# what only tells repeats apart stays, and what is gone by itself within a day; docs/OPERATIONS.md lists it
STAYS = {"counter_messages", "dialog_outbox_events", "idempotency_keys"}


def erase(binary, server, *arguments):
    return run(binary, "erase-user", *arguments, "--server", f"http://127.0.0.1:{server.port}")


def told(done):
    """{service: {place: rows}}"""
    assert done.returncode == 0, done
    services = {}
    for line in done.stdout.splitlines():
        service, places = line.split(": ", 1)
        services[service] = {} if places == "nothing" else {
            place.split(" ", 1)[1]: int(place.split(" ", 1)[0]) for place in places.split(", ")}
    return services


def tables_with(store, text):
    """The names of the tables that have this text in any column."""
    def has(row):
        return any(text.encode() in (bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode())
                   for value in row)

    if store.name == "postgres":
        names = store.database.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {name for (name,) in names if any(has(row) for row in store.database.query(f'SELECT * FROM "{name}"'))}
    found = set()
    for service in ("dialogs", "counters", "entitlements", "notifications", "gateway"):
        with contextlib.closing(open_to_read(store.data / f"{service}.db")) as file:
            names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            found |= {name for name in names if any(has(row) for row in file.execute(f'SELECT * FROM "{name}"'))}
    return found


def left_queued(store, person):
    """The place of rows that stay behind on PostgreSQL if a message is noted and taken at the same moment."""
    if store.name == "sqlite":
        return {}
    rows = store.database.query("SELECT 1 FROM queued_messages WHERE user_id = %s", (person,))
    return {"queued message": len(rows)} if rows else {}


def queues_with(store, text):
    """The names of the local buses' files that have this text in a message."""
    found = set()
    for path in store.data.glob("*-bus.db"):
        with contextlib.closing(open_to_read(path)) as file:
            rows = file.execute("SELECT subject, key, headers, value FROM messages").fetchall()
        if any(text.encode() in value for row in rows for value in row):
            found.add(path.name)
    return found


def settle(server):
    wait_until(lambda: server.metric("quipu_outbox_pending") == 0, "everything is published")
    wait_until(lambda: walk(server, "unread", 1000)[0] == [], "everything is counted")


def post(client, target, body, **options):
    answer = client.ask("POST", target, body, **options)
    assert answer.status == 200, answer
    return answer.json()


def live(client, server, person, others):
    """The person does something in every service, and so do others, among them and with the person."""
    for other in others:
        for _ in range(3):
            client.sent(person, other, SECRET)
        client.sent(other, person, "hello")
        client.sent(others[0], other, "hello")
    client.read(others[0], client.sent(person, others[0], SECRET))
    for user in (person, *others):
        post(client, "/v1/entitlements/grants", {"user_id": user, "stock_keeping_unit": "item1", "reason": "purchase",
                                                  "purchase_id": f"p-{user}"}, key=new_key())
        post(client, "/api/config", {"userId": user, "rateLimit": 5, "timeWindow": 60})
        post(client, "/api/send", {"userId": user, "message": SECRET if user == person else "hello"})
    wait_until(lambda: all(inbox(server, user) for user in (person, *others)), "everybody is notified")
    wait_until(lambda: server.metric("quipu_sender_sent_total") == 1 + len(others), "every message is sent")
    settle(server)


def inbox(server, user):
    return server.ask("GET", f"/debug/notification/inbox/{user}").json()["notifications"]


def numbers(client, server, user):
    """Everything that is counted for a user, and the user's own rows."""
    return {
        "unread": client.count(user),
        "conversations": sorted(entry["unread"] for entry in client.conversations(user).json()),
        "entitlements": client.ask("GET", f"/v1/users/{user}/entitlements").json(),
        "limit": client.ask("GET", f"/api/config/{user}").json()["currentCount"],
        "notifications": [entry["notification_id"] for entry in inbox(server, user)],
    }


def test_a_person_goes_and_the_numbers_of_everybody_else_stay(binary, serve, store, unread_client):
    server = serve(store, *ALL)
    client = unread_client(server)
    person, others = new_user(), [new_user() for _ in range(3)]
    live(client, server, person, others)
    before = {user: numbers(client, server, user) for user in others}
    assert tables_with(store, person) > STAYS

    counted = told(erase(binary, server, person, "--dry-run"))
    assert counted == {
        "gateway": {"message": 1, "limit": 1, **left_queued(store, person)},
        "entitlements": {"event": 1, "source": 1, "audit line": 1, "entitlement": 1},
        "notifications": {"notification": 1},
        "dialogs": {"messages received": 3, "messages sent": 10, "conversations": 3},
        "counters": {"unread messages": 3, "counter": 1},
    }
    assert {user: numbers(client, server, user) for user in others} == before, "a dry run changes nothing"
    assert told(erase(binary, server, person)) == counted

    assert tables_with(store, person) <= STAYS
    assert tables_with(store, SECRET) == set()
    assert {user: numbers(client, server, user) for user in others} == before
    assert verify(binary, server).returncode == 0
    for user in others:
        (erased,) = [entry for entry in client.conversations(user).json() if entry["userId"].startswith("erased-")]
        assert erased["lastMessage"]["text"] == "" and erased["lastMessage"]["senderId"] == erased["userId"]
        assert len(client.list(user, erased["userId"]).json()) == (4 if user == others[0] else 3)
    assert client.conversations(person).json() == [] and client.ask("GET", f"/api/config/{person}").status == 404
    assert set(map(str, told(erase(binary, server, person)).values())) == {"{}"}, "erased twice is erased once"


@pytest.mark.parametrize("role, bus", [("counters", "--unread-bus=amqp"), ("notifications", "--entitlements-bus=nats")])
def test_a_process_with_a_single_role_erases_what_that_role_keeps(binary, serve, store, free_port, role, bus):
    server = serve(store, "--roles", role, f"{bus}://127.0.0.1:{free_port}", ready=False)  # no erasure needs the bus
    wait_until(lambda: server.dependencies()[f"{role}-store"] == "up", "its store is up")
    for _ in range(2):  # the second one finds the process alive
        done = erase(binary, server, new_user())
        assert done.returncode == 0 and f"{role}: nothing" in done.stdout.splitlines(), done


def test_after_a_stop_the_local_buses_have_nothing_of_the_person(binary, serve, sqlite_store, unread_client):
    server = serve(sqlite_store, *ALL)
    client = unread_client(server)
    person, others = new_user(), [new_user() for _ in range(2)]
    live(client, server, person, others)
    told(erase(binary, server, person))
    server.stop()
    assert len(list(sqlite_store.data.glob("*-bus.db"))) == 3
    assert queues_with(sqlite_store, person) == queues_with(sqlite_store, SECRET) == set()
    assert queues_with(sqlite_store, others[0]) == set(), "everything was received"


def test_events_that_are_delivered_again_do_not_bring_the_person_back(binary, serve, store, unread_client):
    server = serve(store, *ALL)
    client = unread_client(server)
    person, other = new_user(), new_user()
    live(client, server, person, [other])
    erase(binary, server, person)
    before = numbers(client, server, other)
    for kind in ("dialog-outbox", "outbox"):
        done = run(binary, "outbox", "resend", kind, "--since", "24h", "--server", f"http://127.0.0.1:{server.port}")
        assert done.returncode == 0, done
    client.sent(other, other)  # behind those that were published again
    wait_until(lambda: client.count(other) == before["unread"] + 1, "the events behind them are counted")
    settle(server)
    assert tables_with(store, person) <= STAYS
    assert inbox(server, person) == [] and verify(binary, server).returncode == 0


def test_streams_of_an_erased_person_show_0_and_go_on_with_newer_versions(binary, serve, store, unread_client):
    server = serve(store, "--roles", "dialogs,counters")
    client = unread_client(server)
    person, other = new_user(), new_user()
    for _ in range(3):
        client.sent(other, person)
    client.wait_count(person, 3)
    with client.follow(person) as stream:
        known = stream.until(3)[-1]
        assert erase(binary, server, person).returncode == 0
        assert stream.next() == (0, {"userId": person, "type": "UnreadMessages", "count": 0, "lastUpdated": None})
        client.sent(other, person)
        version, counter = stream.next()
        assert version > known and counter["count"] == 1
    client.wait_count(person, 1)
    with client.follow(person, **{"Last-Event-ID": str(known)}) as stream:
        assert stream.next() == (version, counter)


def test_what_a_person_did_is_recorded_without_the_id(binary, serve, store, unread_client):
    server = serve(store, *ALL)
    client = unread_client(server)
    person, other = new_user(), new_user()
    live(client, server, person, [other])
    erase(binary, server, person)
    assert "operator_actions" not in tables_with(store, person)
    (entry,) = [entry["userId"] for entry in client.conversations(other).json() if entry["userId"].startswith("erased-")]
    assert "operator_actions" in tables_with(store, entry)
    details = {action["detail"] for action in client.ask("GET", "/operator/actions").json()["actions"]}
    assert details >= {"gateway: 1 message", "entitlements: 1 audit line", "dialogs: 4 messages sent", "counters: 1 counter"}


@contextlib.contextmanager
def changed(database, table, column, person):
    """Another session has changed the person's rows, and commits when somebody waits for it."""
    def waiter(pid):
        return database.query("SELECT 1 FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))", (pid,))

    with contextlib.closing(database.connect()) as session, session.cursor() as cursor:
        session.autocommit = False
        cursor.execute(f"UPDATE {table} SET {column} = {column} WHERE {column} = %s", (person,))
        assert cursor.rowcount > 0
        yield
        wait_until(lambda: waiter(session.info.backend_pid), "the erasure waits for the rows")
        session.commit()


@pytest.mark.parametrize("table, column", [("messages", "sender_id"), ("counters", "user_id"), ("notifications", "user_id")])
def test_rows_that_others_change_meanwhile_are_erased_too_on_one_server(binary, serve, postgres_store, unread_client, table, column):
    """The statements of the erasure have chosen the rows as they were before the change."""
    server = serve(postgres_store, *ALL)
    client = unread_client(server)
    person, other = new_user(), new_user()
    live(client, server, person, [other])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with changed(postgres_store.database, table, column, person):
            erasure = pool.submit(erase, binary, server, person)
        told(erasure.result())
    assert tables_with(postgres_store, person) <= STAYS
    assert tables_with(postgres_store, SECRET) == set()


def test_events_without_a_line_in_the_audit_are_found_by_index_on_one_server(binary, serve, postgres_store):
    database = postgres_store.database
    serve(postgres_store, *ALL).stop()
    database.query(
        "INSERT INTO outbox_events (event_id, event_type, aggregate_key, trace_id, payload, status, created_at, published_at) "
        "SELECT gen_random_uuid(), 'x', 'x', '', '', 'PUBLISHED', now(), now() FROM generate_series(1, 5000)")
    with explained(database, "outbox_events") as plans:
        server = serve(postgres_store, *ALL)
        told(erase(binary, server, new_user()))
        server.stop()
    plans = [plan for plan in plans if "starts_with" in plan]
    assert len(plans) == 2, "one that erases and one that counts what is left"
    for plan in plans:
        assert all(f"outbox_events_{index}" in plan for index in ("open", "failed", "discarded")), plan
        assert scans_of([plan], "outbox_events", "Seq Scan") == []


def test_a_step_is_bounded_and_an_erasure_goes_on_after_a_crash(binary, serve, store, unread_client):
    server = serve(store, *ALL)
    client = unread_client(server)
    person, other = new_user(), new_user()
    for _ in range(1005):
        client.sent(person, other, "x")
    step = post(client, "/operator/erase/dialogs", {"userId": person})
    assert step["more"] is True and {place["place"]: place["rows"] for place in step["places"]}["messages sent"] == 1000
    server.kill()
    server = serve(store, *ALL)
    assert told(erase(binary, server, person))["dialogs"]["messages sent"] == 5
    (entry,) = unread_client(server).conversations(other).json()
    assert entry["unread"] == 1005 and entry["userId"].startswith("erased-")


def test_services_of_other_servers_are_named(binary, serve, store, unread_client):
    server = serve(store, "--roles", "dialogs,counters")
    done = erase(binary, server, new_user())
    assert done.returncode == 0 and done.stdout == (
        "dialogs: nothing\ncounters: nothing\nentitlements: not on this server\nnotifications: not on this server\n"
        "gateway: not on this server\n")
    assert_problem(unread_client(server).ask("POST", "/operator/erase/gateway", {"userId": "x"}), 404, "ROLE_NOT_HERE")


@pytest.mark.parametrize("body", [{}, {"userId": ""}, {"userId": 5}, {"userId": "x" * 129}, {"userId": "x", "dryRun": "yes"}],
                         ids=repr)
def test_a_request_that_names_nobody_is_refused(serve, sqlite_store, unread_client, body):
    client = unread_client(serve(sqlite_store, "--roles", "dialogs,counters"))
    assert_bad_request(client.ask("POST", "/operator/erase/dialogs", body))


def test_the_command_takes_one_id(binary):
    for arguments in ([], ["a", "b"]):
        done = run(binary, "erase-user", *arguments)
        assert done.returncode == 2 and "usage: quipu erase-user ID [--dry-run]" in done.stderr

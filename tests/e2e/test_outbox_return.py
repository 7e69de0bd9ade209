"""When a broker returns, everything in the outbox leaves at once, whatever the lease: an outage puts no row off for longer
than 2 s and counts as no attempt, however often it happens."""

import time

import pytest

from harness.entitlement_load import Grants
from harness.unread import new_user
from harness.waiting import wait_until

OUTAGES = 3
LEASES = ["3s", "1h"]  # the end of the second is never waited for: what was claimed must be returned

# Keeps for how long each change of a row has put it off, and how many attempts the row has then. A look at the rows now
# and then would miss most changes.
KEEP_DELAYS = """
    CREATE TABLE delays (seconds float8, attempts integer);
    CREATE FUNCTION keep_delay() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO delays VALUES (extract(epoch FROM NEW.next_retry_at - quipu_now()), NEW.attempt_count);
            RETURN NULL;
        END $$;
    CREATE TRIGGER keep_delay AFTER UPDATE ON {table} FOR EACH ROW
        WHEN (NEW.next_retry_at IS DISTINCT FROM OLD.next_retry_at OR NEW.attempt_count <> OLD.attempt_count)
        EXECUTE FUNCTION keep_delay()
"""


@pytest.fixture(scope="module")
def rabbitmq_server(own_rabbitmq):
    """Tests of this file stop it: nobody else may use it meanwhile."""
    return own_rabbitmq


def wait_down(server, bus):
    def is_down():
        dependencies = server.ask("GET", "/readyz").json()["dependencies"]
        return {entry["name"]: entry["status"] for entry in dependencies}[bus] == "down"

    wait_until(is_down, f"{bus} is down")


def wait_published(database, table):
    def is_published():
        return database.query(f"SELECT count(*) FROM {table} WHERE status <> 'PUBLISHED'") == [(0,)]

    wait_until(is_published, "everything has left", explain=lambda: database.query(
        f"SELECT status, attempt_count, next_retry_at, lease_until, last_error, count(*) FROM {table} GROUP BY 1, 2, 3, 4, 5"))


def wait_caught_up(database, table):
    """Waits until everything has left that was in the outbox when the broker was back, and prints how long that took."""
    returned = time.monotonic()
    [(now,)] = database.query("SELECT quipu_now()")

    def has_left():
        return database.query(f"SELECT count(*) FROM {table} WHERE status <> 'PUBLISHED' AND created_at <= %s", (now,)) == [(0,)]

    wait_until(has_left, "what waited for the broker has left")
    print(f"{table}: empty {time.monotonic() - returned:.2f} s after the broker's return")


def assert_nothing_was_put_off(database):
    assert database.query("SELECT * FROM delays WHERE seconds > 2 OR attempts > 0") == []


@pytest.mark.parametrize("lease", LEASES)
def test_with_nats_killed_again_and_again_nothing_is_put_off(serve, nats_stack, nats, lease):
    database = nats_stack.database
    server = serve(nats_stack, "--outbox-lease", lease)
    database.query(KEEP_DELAYS.format(table="outbox_events"))
    for _ in range(OUTAGES):
        with Grants(server) as grants:
            grants.wait_granted(50)
            nats.kill()
            wait_down(server, "entitlements-bus")
            grants.wait_granted(50)
            nats.start()
            wait_caught_up(database, "outbox_events")
            grants.wait_granted(20)
        assert set(grants.statuses) == {200}
        wait_published(database, "outbox_events")
    assert_nothing_was_put_off(database)


@pytest.mark.full
@pytest.mark.parametrize("lease", LEASES)
def test_with_rabbitmq_killed_again_and_again_nothing_is_put_off(
    serve, unread_client, full_unread, rabbitmq_server, lease
):
    database = full_unread.database
    server = serve(full_unread, "--outbox-lease", lease)
    dialogs = unread_client(server)
    users = [new_user() for _ in range(5)]

    def send(count):
        for number in range(count):
            dialogs.sent(users[0], users[number % 5])

    database.query(KEEP_DELAYS.format(table="dialog_outbox_events"))
    for _ in range(OUTAGES):
        send(20)
        rabbitmq_server.kill()
        try:
            send(20)
            wait_down(server, "unread-bus")
            send(20)
        finally:
            rabbitmq_server.start()
        wait_caught_up(database, "dialog_outbox_events")
        wait_published(database, "dialog_outbox_events")
    assert_nothing_was_put_off(database)
    full_unread.wait_agreement()

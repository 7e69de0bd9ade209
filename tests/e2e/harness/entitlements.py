"""Entitlements and notifications as a client sees them, and their engines as independent clients see them."""

import contextlib
import itertools
import pathlib
from urllib.parse import quote

from . import protos
from .counts import new_id, new_key
from .http import Client, render
from .stores import open_to_read
from .waiting import wait_until

GRANTS = "/v1/entitlements/grants"
REVOKES = "/v1/entitlements/revokes"
FIELDS = ("user_id", "stock_keeping_unit", "reason", "purchase_id")

_folders = itertools.count(1)


def new_user():
    """Returns a user that no other test has."""
    return new_id("u")


def change(user, unit="item1", reason="purchase", purchase="p_1"):
    body = {"user_id": user, "stock_keeping_unit": unit, "reason": reason, "purchase_id": purchase}
    if purchase is None:
        del body["purchase_id"]
    return body


def request_bytes(target, body, key=None):
    """Returns the bytes of a change, for tests that send many at one moment."""
    return render("POST", target, body, {"Idempotency-Key": key or new_key()})


def event_class():
    """Returns EntitlementEvent, compiled from the .proto by protoc, independently of the program."""
    return protos.load("proto/entitlements.proto").EntitlementEvent


def make_event(user, unit="item1", version=1, event_type="EntitlementGranted", event_id=None, **more):
    event = event_class()(
        event_id=event_id or new_key().removeprefix("key-"), event_type=event_type, user_id=user,
        stock_keeping_unit=unit, source="purchase", source_id="p_1", version=version, **more)
    event.occurred_at.FromJsonString("2026-01-08T07:10:00Z")
    return event


class Entitlements(Client):
    def grant(self, user, unit="item1", reason="purchase", purchase="p_1", key=None, **options):
        return self.ask("POST", GRANTS, change(user, unit, reason, purchase), key=key or new_key(), **options)

    def revoke(self, user, unit="item1", reason="refund", purchase="p_1", key=None, **options):
        return self.ask("POST", REVOKES, change(user, unit, reason, purchase), key=key or new_key(), **options)

    def granted(self, count=1, unit="item1"):
        """Returns new users with one grant each."""
        users = [new_user() for _ in range(count)]
        for user in users:
            assert self.grant(user, unit).status == 200
        return users if count > 1 else users[0]

    def list(self, user, query=""):
        return self.ask("GET", f"/v1/users/{quote(user, safe='')}/entitlements{query}")

    def look(self, user, unit="item1"):
        return self.ask("GET", f"/v1/users/{quote(user, safe='')}/entitlements/{quote(unit, safe='')}")

    def sources(self, user, unit="item1"):
        """Returns the sources of an entitlement as {(kind, id): status}."""
        answer = self.look(user, unit)
        assert answer.status == 200, answer
        return {(one["kind"], one["source_id"]): one["status"] for one in answer.json()["sources"]}

    def inbox(self, user, query=""):
        answer = self.ask("GET", f"/debug/notification/inbox/{quote(user, safe='')}{query}")
        assert answer.status == 200, answer
        return answer.json()["notifications"]

    def wait_sent(self, *users, count=1):
        """Returns when each user has that many notifications, all of them SENT."""
        for user in users:
            wait_until(
                lambda user=user: [n["status"] for n in self.inbox(user)] == ["SENT"] * count,
                f"{count} SENT for {user}")


class EntitlementStack:
    """A store and a bus. A restart on a stack uses the same folder; `beside()` is another process on the same
    engines."""

    roles = "entitlements,notifications"

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.data = self.directory / f"entitlement-data-{next(_folders)}"

    def arguments(self):
        return ["--roles", self.roles, "--data", str(self.data), *self.engine_arguments()]

    def rows(self, table, columns="*", where="true"):
        """Returns rows as dicts; times are as the engine stores them."""
        return self.query(table, f"SELECT {columns} FROM {table} WHERE {where}")

    def count(self, table, where="true"):
        return self.rows(table, "count(*) AS n", where)[0]["n"]

    def open_events(self):
        return self.count("outbox_events", "status <> 'PUBLISHED'")

    def wait_published(self):
        wait_until(lambda: self.open_events() == 0, "the outbox is drained")

    def wait_all_sent(self, count):
        """Returns when that many events are PUBLISHED and each has become one notification that is SENT."""
        wait_until(lambda: self.count("outbox_events", "status = 'PUBLISHED'") == count, f"{count} are published")
        wait_until(lambda: self.count("notifications", "status = 'SENT'") >= count, f"{count} are sent")
        assert self.count("notifications") == self.count("processed_events") == count


class SqliteLocal(EntitlementStack):
    engine = "sqlite"

    def engine_arguments(self):
        return []

    def query(self, table, sql):
        """Call it only while a server runs: the last connection to close would checkpoint the file."""
        ours = table in ("entitlements", "entitlement_sources", "outbox_events", "entitlement_audit", "idempotency_keys")
        name = "entitlements.db" if ours else "notifications.db"
        with contextlib.closing(open_to_read(self.data / name)) as connection:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row)) for row in cursor.fetchall()]


class PostgresBus(EntitlementStack):
    """PostgreSQL, and NATS or Kafka."""

    engine = "postgres"

    def __init__(self, directory, database, bus, options="", roles=None):
        super().__init__(directory)
        self.database = database
        self.bus = bus
        self.options = options  # options in the bus's URL
        self.roles = roles or self.roles

    def beside(self, roles=None):
        return PostgresBus(self.directory, self.database, self.bus, self.options, roles or self.roles)

    def engine_arguments(self):
        return ["--store", self.database.url, "--entitlements-bus", self.bus.url + self.options]

    def query(self, table, sql, arguments=None):
        del table
        with contextlib.closing(self.database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row)) for row in cursor.fetchall()]

    def make_due(self, table):
        """Makes every row due that waits for its next attempt."""
        self.database.query(f"UPDATE {table} SET next_retry_at = quipu_now() WHERE status = 'PENDING'")

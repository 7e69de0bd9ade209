"""What a gateway stands on: a store, a cache and a queue file, looked at with independent clients.

The queue of `local:` is in the data folder, so a restart on a stack uses the same folder; `beside()` is the same store
and cache with a folder of its own, for another process.
"""

import contextlib
import datetime
import itertools
import pathlib
import sqlite3

import pytest

from .stores import open_to_read

# For tests that restart a server several times. The store is the same with and without a cache, and both of these pass
# it: without one, which costs as much again, they run in make test-full.
on_each_engine = pytest.mark.parametrize(
    "stack", ["sqlite-memory", "postgres-redis", *(pytest.param(name, marks=pytest.mark.full)
                                                   for name in ("sqlite-none", "postgres-none"))], indirect=True)

# What a killed sender had claimed is free again after this time. A sender that is to send once, however slow the machine
# is, has the long lease, and follows a killed one later.
SHORT_LEASE = ("--notify-timeout", "1s", "--notify-lease", "2s")
LONG_LEASE = ("--notify-timeout", "20m", "--notify-lease", "1h")
AFTER_THE_LONG_LEASE = {"QUIPU_TEST_CLOCK_OFFSET": "2h"}

COLUMNS = "rate_limit, time_window, current_count, reserved_count, last_refresh_time"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_folders = itertools.count(1)


class GatewayStack:
    def __init__(self, directory, cache):
        self.directory = pathlib.Path(directory)
        self.data = self.directory / f"gateway-data-{next(_folders)}"
        self.cache = cache  # as --cache spells it

    @property
    def name(self):
        """As stores have it."""
        return self.engine

    def arguments(self):
        return ["--roles", "gateway,sender", "--cache", self.cache, "--data", str(self.data), *self.store_arguments()]

    def row(self, user):
        """The row as a dict, times in microseconds since 1970; None where there is none."""
        found = self._fetch(user)
        return dict(zip(COLUMNS.split(", "), found)) if found else None

    def count(self, user):
        return self.row(user)["current_count"]

    def recorded(self):
        """How many messages are sent."""
        return self._messages("'SENT'")

    def unsent(self):
        """How many messages were taken from the queue and are not sent."""
        return self._messages("'PENDING', 'SENDING'")

    def outbound(self, columns):
        """What the table of messages has, row by row."""
        return self._query(f"SELECT {columns} FROM outbound_messages")

    def _messages(self, states):
        return self._query(f"SELECT count(*) FROM outbound_messages WHERE status IN ({states})")[0][0]

    @contextlib.contextmanager
    def queue(self):
        """The queue file, while no server runs: it lets nobody else in."""
        with contextlib.closing(sqlite3.connect(self.data / "gateway-bus.db")) as connection:
            yield connection
            connection.commit()

    def put_into_queue(self, values):
        with self.queue() as queue:
            (channel,) = queue.execute("SELECT id FROM channels WHERE name = 'sms-outbound'").fetchone()
            queue.executemany(
                "INSERT INTO messages (channel, published_at, subject, key, id, headers, value) "
                "VALUES (?, 0, x'', x'', x'', x'', ?)", [(channel, value) for value in values]
            )

    def queued(self, channel="sms-outbound"):
        """The values that lie in a channel, oldest first."""
        with self.queue() as queue:
            return [bytes(value) for (value,) in queue.execute(
                "SELECT value FROM messages WHERE channel = (SELECT id FROM channels WHERE name = ?) ORDER BY offset",
                (channel,)
            )]


class SqliteStack(GatewayStack):
    engine = "sqlite"
    next_try_s = "next_retry_at / 1e6"  # of a message, in seconds since 1970

    def store_arguments(self):
        return []

    def _query(self, sql, arguments=()):
        """Only while a server runs: the last connection to close would checkpoint the file."""
        with contextlib.closing(open_to_read(self.data / "gateway.db")) as connection:
            return connection.execute(sql, arguments).fetchall()

    def _fetch(self, user):
        rows = self._query(f"SELECT {COLUMNS} FROM rate_limit_store WHERE user_id = ?", (user,))
        return rows[0] if rows else None


class PostgresStack(GatewayStack):
    engine = "postgres"
    next_try_s = "extract(epoch FROM next_retry_at)::float8"

    def __init__(self, directory, cache, database):
        super().__init__(directory, cache)
        self.database = database

    def beside(self, cache=None):
        return PostgresStack(self.directory, cache or self.cache, self.database)

    def store_arguments(self):
        return ["--gateway-store", self.database.url]

    def _fetch(self, user):
        rows = self.database.query(f"SELECT {COLUMNS} FROM rate_limit_store WHERE user_id = %s", (user,))
        if not rows:
            return None
        *numbers, refreshed = rows[0]
        return (*numbers, (refreshed - _EPOCH) // datetime.timedelta(microseconds=1))

    def _query(self, sql):
        return self.database.query(sql)


class KafkaStack(PostgresStack):
    options = ""  # of the URL

    def __init__(self, directory, cache, database, broker, roles="gateway,sender"):
        super().__init__(directory, cache, database)
        self.broker = broker
        self.roles = roles

    def arguments(self):
        return [*super().arguments(), "--gateway-bus", self.broker.url + self.options, "--roles", self.roles]

    def beside(self, roles=None):
        return KafkaStack(self.directory, self.cache, self.database, self.broker, roles or self.roles)

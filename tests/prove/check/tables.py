"""The tables, read without the program: SQLite's files by the module sqlite3, PostgreSQL by psycopg2.

Statements must mean the same to both. Files are opened read-only; the server may run meanwhile.
"""

import contextlib
import pathlib
import sqlite3
import warnings


class Tables:
    def __init__(self, cluster):
        self._cluster = cluster
        self._closing = contextlib.ExitStack()
        self._open = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closing.close()

    def rows(self, service, statement):
        """All rows of a statement on the tables of a service: counts, gateway, entitlements, notifications, pots,
        dialogs, counters."""
        cursor = self._connection(service).cursor()
        try:
            cursor.execute(statement)
            return cursor.fetchall()
        finally:
            cursor.close()

    def has(self, service, table):
        catalog = "sqlite_master WHERE name" if self._cluster.is_sqlite else "pg_class WHERE relname"
        return bool(self.rows(service, f"SELECT 1 FROM {catalog} = '{table}'"))

    def time_us(self, column):
        """SQL for a time as microseconds since 1970."""
        if self._cluster.is_sqlite:
            return column
        return f"CAST(extract(epoch FROM {column}) * 1000000 AS bigint)"

    def _connection(self, service):
        name = service if self._cluster.is_sqlite else ""
        if name not in self._open:
            connection = self._connect_sqlite(name) if self._cluster.is_sqlite else self._connect_postgres()
            self._open[name] = self._closing.enter_context(contextlib.closing(connection))
        return self._open[name]

    def _connect_sqlite(self, service):
        path = pathlib.Path(self._cluster.store_url) / f"{service}.db"
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)

    def _connect_postgres(self):
        import psycopg2  # only here, so that a proof on SQLite needs no driver

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            connection = psycopg2.connect(self._cluster.store_url)
        connection.set_session(readonly=True, autocommit=True)
        return connection

"""The two stores that a server can use, and an independent client for each (psycopg2, sqlite3)."""

import contextlib
import itertools
import pathlib
import sqlite3


class PostgresStore:
    name = "postgres"

    def __init__(self, database, directory):
        self.database = database
        self._directory = pathlib.Path(directory)
        self._folders = itertools.count(1)

    def arguments(self):
        """Gives every process a data folder of its own, because only one process at a time can use a folder."""
        return ["--store", self.database.url, "--data", str(self._directory / f"data-{next(self._folders)}")]

    def value(self, item):
        return self.database.value(item)


class SqliteStore:
    name = "sqlite"

    def __init__(self, directory):
        self.data = pathlib.Path(directory)

    def arguments(self):
        return ["--data", str(self.data)]

    def file(self):
        """Returns the one file that has the table, whatever it is called."""
        for path in sorted(self.data.rglob("*")):
            if path.is_file() and _is_sqlite(path) and _has_counts(path):
                return path
        raise AssertionError(f"no SQLite file with the table count_values in {sorted(self.data.rglob('*'))}")

    def value(self, item):
        """Call it only while a server runs: the last connection to close would checkpoint the file."""
        with contextlib.closing(open_to_read(self.file())) as connection:
            row = connection.execute("SELECT current_value FROM count_values WHERE item_id = ?", (item,)).fetchone()
            return row[0] if row else None


def _is_sqlite(path):
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def open_to_read(path):
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)


def _has_counts(path):
    with contextlib.closing(open_to_read(path)) as connection:
        return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'count_values'").fetchone() is not None

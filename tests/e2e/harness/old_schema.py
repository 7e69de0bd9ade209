"""A database as an older version has left it: created by the first migrations of a service, and filled by hand."""

import contextlib
import pathlib
import sqlite3

ROOT = pathlib.Path(__file__).resolve().parents[3]


class OldSchema:
    """`OldSchema("dialogs.db", [("common", 1, "base"), ...])`: the file on SQLite, and the migrations that were applied."""

    def __init__(self, file, migrations):
        self._file = file
        self._migrations = migrations

    def run(self, store, statements):
        if store.name == "postgres":
            for statement in statements:
                store.database.query(statement)
            return
        store.data.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(store.data / self._file)) as file, file:
            for statement in statements:
                file.executescript(statement)

    def make(self, store):
        time = "timestamptz DEFAULT now()" if store.name == "postgres" else "INTEGER DEFAULT 0"
        scripts = [ROOT / f"sql/{store.name}/{component}/{version:04}_{name}.sql"
                   for component, version, name in self._migrations]
        self.run(store, [
            *(script.read_text(encoding="utf-8") for script in scripts),
            "CREATE TABLE schema_migrations (component text NOT NULL, version integer NOT NULL, name text NOT NULL, "
            f"applied_at {time} NOT NULL, PRIMARY KEY (component, version))",
            *(f"INSERT INTO schema_migrations (component, version, name) VALUES ('{component}', {version}, '{name}')"
              for component, version, name in self._migrations),
        ])

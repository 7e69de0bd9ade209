"""What SQLite itself reports about the files: PRAGMA integrity_check, which operators run on their backups."""

import contextlib
import os
import pathlib
import sqlite3

from harness.counts import new_key

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRANT = {"user_id": "u", "stock_keeping_unit": "s", "reason": "purchase", "purchase_id": "p"}
OLD_SCHEMA = [("common", 1, "base"), ("common", 2, "operator_actions"), ("entitlements", 1, "entitlements")]


def check(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall()


def use_every_service(server):
    keyed = {"Idempotency-Key": new_key()}
    assert server.ask("POST", "/api/v1/internal/counts", {"itemId": "a"}).status == 201
    assert server.ask("POST", "/api/v1/counts/a/increase", headers=keyed).status == 200
    assert server.ask("POST", "/api/config", {"userId": "u", "rateLimit": 5, "timeWindow": 60}).status == 200
    assert server.ask("POST", "/api/send", {"userId": "u", "message": "m"}).status == 200
    assert server.ask("POST", "/v1/entitlements/grants", GRANT, keyed).status == 200
    assert server.ask("POST", "/dialogs/send", {"receiverId": "v", "text": "t"}, {"X-User-Id": "u"}).status < 300
    pot = {"pot_name": "piggy", "max_coins": 10}
    assert server.ask("POST", "/twirp/pyggpot.pot.Pot/CreatePot", pot).status == 200


def test_every_file_is_whole(serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "all")
    use_every_service(server)
    server.stop()
    files = sorted(sqlite_store.data.glob("*.db"))
    assert len(files) >= 8
    assert {path.name: check(path) for path in files} == {path.name: [("ok",)] for path in files}


def test_files_are_for_nobody_else_whatever_the_umask(serve, sqlite_store):
    before = os.umask(0)
    try:
        server = serve(sqlite_store, "--roles", "all")
    finally:
        os.umask(before)
    use_every_service(server)
    modes = {path.name: path.stat().st_mode & 0o077 for path in sqlite_store.data.rglob("*")}
    server.stop()
    assert len(modes) >= 9 and set(modes.values()) == {0}, modes


def write_old_file(path):
    """As the first version wrote it, with the key of the audit last."""
    with contextlib.closing(sqlite3.connect(path)) as file:
        for component, version, name in OLD_SCHEMA:
            script = ROOT / f"sql/sqlite/{component}/{version:04}_{name}.sql"
            file.executescript(script.read_text(encoding="utf-8"))
        file.execute("CREATE TABLE schema_migrations (component TEXT NOT NULL, version INTEGER NOT NULL, "
                     "name TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (component, version)) "
                     "STRICT, WITHOUT ROWID")
        file.executemany("INSERT INTO schema_migrations VALUES (?, ?, ?, 0)", OLD_SCHEMA)
        file.execute("INSERT INTO entitlement_audit VALUES (1, 'u', 's', 'GRANTED', 1, 'purchase', 'p', 'e')")
        file.commit()


def test_a_file_of_an_older_version_keeps_its_history_and_becomes_whole(serve, sqlite_store):
    sqlite_store.data.mkdir(parents=True)
    path = sqlite_store.data / "entitlements.db"
    write_old_file(path)
    serve(sqlite_store, "--roles", "entitlements,notifications").stop()
    assert check(path) == [("ok",)]
    with contextlib.closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT occurred_at, event_id, user_id, version FROM entitlement_audit").fetchall() == [
            (1, "e", "u", 1)]

"""Backup and restore, with the commands of docs/OPERATIONS.md as they stand there, under load and on both engines."""

import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest

from harness.load import Load
from harness.waiting import HANG_S

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands(heading):
    page = (ROOT / "docs/OPERATIONS.md").read_text(encoding="utf-8")
    return re.search(rf"^### {heading}\n+```sh\n(.*?)```", page, re.MULTILINE | re.DOTALL).group(1)


def run_commands(heading, replaced, env=None):
    """`systemctl` does nothing: the test starts and stops the server itself."""
    script = "set -eu\nsystemctl() { :; }\n" + commands(heading)
    for old, new in replaced.items():
        assert old in script or old.startswith("/var/lib"), f"{heading} does not speak of {old}"
        script = script.replace(old, str(new))
    done = subprocess.run(["bash", "-c", script], env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def total(counts, items):
    return sum(entry["currentValue"] for entry in counts.list(*items).json())


def replay_all(load, counts):
    """Every client tries every change again with its key, as if it had never had an answer."""
    for change in [*load.acknowledged, *load.unknown]:
        answer = counts.increase(change.item, key=change.key)
        assert answer.status == 200, answer


def check_restored(load, before, counts, items):
    """At least what was acknowledged before the backup began, at most all; and exact after the retries."""
    restored = total(counts, items)
    everything = len(load.acknowledged) + len(load.unknown)
    assert before <= restored <= everything
    replay_all(load, counts)
    assert total(counts, items) == everything


@pytest.fixture
def backups(tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="sqlite3 is not installed")
def test_a_backup_of_sqlite_under_load_is_whole_and_retries_make_it_exact(serve, client, sqlite_store, backups):
    replaced = {"/var/lib/quipu": sqlite_store.data, "/var/backups/quipu": backups}
    server = serve(sqlite_store, "--roles", "all")
    counts = client(server)
    items = [counts.new_item() for _ in range(5)]
    with Load(server.port, items, threads=4) as load:
        load.wait_acknowledged(100)
        before = len(load.acknowledged)
        run_commands("SQLite: backup", replaced)
        load.wait_acknowledged(100)
    load.assert_nothing_unexpected()
    server.stop()
    (taken,) = backups.iterdir()
    files = sorted(path.name for path in taken.iterdir())
    assert files == sorted(path.name for path in sqlite_store.data.glob("*.db") if not path.name.endswith("-bus.db"))
    for path in taken.iterdir():
        assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchall() == [("ok",)], path.name
    run_commands("SQLite: restore", replaced)
    counts = client(serve(sqlite_store, "--roles", "all"))
    assert total(counts, items) < len(load.acknowledged), "the backup is older than the end of the load"
    check_restored(load, before, counts, items)


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="sqlite3 is not installed")
def test_a_second_backup_of_sqlite_into_the_same_folder_is_refused(serve, sqlite_store, backups):
    """VACUUM INTO never writes over a file that is there."""
    serve(sqlite_store)
    replaced = {"/var/lib/quipu": sqlite_store.data, "/var/backups/quipu": backups}
    run_commands("SQLite: backup", replaced)
    with pytest.raises(AssertionError, match="already exists"):
        run_commands("SQLite: backup", replaced)


@pytest.mark.skipif(not shutil.which("pg_dump"), reason="pg_dump is not in the path")
def test_a_backup_of_postgres_under_load_is_whole_and_retries_make_it_exact(serve, client, postgres_store, backups):
    database = postgres_store.database
    server = serve(postgres_store, "--roles", "all")
    counts = client(server)
    items = [counts.new_item() for _ in range(5)]
    replaced, env = {"/var/backups/quipu": backups}, {"QUIPU_STORE": database.url}
    with Load(server.port, items, threads=4) as load:
        load.wait_acknowledged(100)
        before = len(load.acknowledged)
        run_commands("PostgreSQL: backup", replaced, env)
        load.wait_acknowledged(100)
    load.assert_nothing_unexpected()
    server.stop()
    name = f"restored_{database.name}"
    try:
        run_commands("PostgreSQL: restore", {**replaced, "quipu_restored": name}, env)
        url = f"{database.url.rpartition('/')[0]}/{name}"
        restored = serve(postgres_store, "--roles", "all", "--store", url)
        counts = client(restored)
        assert total(counts, items) < len(load.acknowledged), "the backup is older than the end of the load"
        check_restored(load, before, counts, items)
        restored.stop()
    finally:
        database.query(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

"""quipu copy: a folder of SQLite files moves to PostgreSQL, complete, verified and once, whatever dies in between."""

import contextlib
import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess

import pytest

from harness.everything import post, use_every_service
from harness.http import ConnectionLost
from harness.quipu import environment, refused_migrate, run
from harness.stores import PostgresStore, SqliteStore
from harness.verify import verify
from harness.waiting import HANG_S, wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/MOVING.md"
ALL = ("--roles", "all")
MANY = 25_000  # more than two batches
OWNER = "6f0c1e2a-0000-4000-8000-00000000000a"  # of a lock of another program


def copy(binary, store, database, **options):
    return run(binary, "copy", "--from", f"sqlite:{store.data}", "--to", database.url, **options)


def fill(store, rows):
    """Counts by the thousand, faster than over HTTP."""
    with contextlib.closing(sqlite3.connect(store.data / "counts.db")) as file, file:
        file.executemany("INSERT INTO count_values (item_id, current_value, last_updated_at) VALUES (?, ?, ?)",
                         ((f"item-{n:06}", n - 7, 1_700_000_000_000_000 + n) for n in range(rows)))


@pytest.fixture
def moved_from(serve, sqlite_store):
    """A folder with something of every service, its server stopped, and the requests that were sent with keys."""
    server = serve(sqlite_store, *ALL)
    keyed = use_every_service(server)
    answers = [post(server, *request).body for request in keyed]
    server.stop()
    return sqlite_store, keyed, answers


def test_everything_moves_and_goes_on_under_the_same_keys(moved_from, binary, serve, database, tmp_path):
    store, keyed, answers = moved_from
    fill(store, MANY)
    done = copy(binary, store, database)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("and verified\n") and done.stderr.count("\r") == 0
    server = serve(PostgresStore(database, tmp_path), *ALL)
    checked = verify(binary, server)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for request, answer in zip(keyed, answers):
        again = post(server, *request)
        assert again.body == answer and again.header("Idempotent-Replayed") == "true", request
    assert database.value("visits") == 42 and database.value(f"item-{MANY - 1:06}") == MANY - 8
    assert server.ask("GET", "/counters/user/bob/UnreadMessages").json()["count"] == 1
    assert post(server, "/api/send", {"userId": "1001", "message": "next"}).json()["remaining"] == 3
    assert post(server, "/twirp/pyggpot.pot.Pot/CreatePot", {"pot_name": "second", "max_coins": 10}).json()["pot_id"] == 2
    assert post(server, "/twirp/pyggpot.coin.Coin/ListCoins", {"pot_id": 1}).json()["coins"] == [{"kind": "GOLD", "count": 43}]
    conversations = server.ask("GET", "/dialogs", headers={"X-User-Id": "bob"}).json()
    assert [one["unread"] for one in conversations] == [1]


def test_the_source_is_not_served_again_by_mistake(moved_from, binary, serve, database, tmp_path):
    store, _, _ = moved_from
    assert copy(binary, store, database).returncode == 0
    for command in ("serve", "migrate"):
        refused = run(binary, command, "--listen", "127.0.0.1:0", *store.arguments())
        assert refused.returncode != 0
        assert "was moved to postgres://" in refused.stderr and f"delete {store.data}/moved" in refused.stderr
    serve(PostgresStore(database, tmp_path))
    again = copy(binary, store, database)
    assert again.returncode == 0 and "already" in again.stdout
    told = json.loads(run(binary, "copy", "--json", "--data", store.data, env={"QUIPU_STORE": database.url}).stdout)
    assert told["already"] and told["from"] == str(store.data)
    (store.data / "moved").unlink()
    assert serve(store).ask("GET", "/api/v1/internal/counts/visits").json()["currentValue"] == 42


@pytest.mark.parametrize("point", ["copy.batch=kill@1", "copy.batch=kill@3", "copy.batch=kill@9", "copy.marked=kill@1"])
def test_a_copy_that_is_killed_goes_on_where_it_stopped(moved_from, binary, serve, database, tmp_path, point):
    store, _, _ = moved_from
    fill(store, MANY)
    killed = copy(binary, store, database, env={"QUIPU_FAILPOINTS": point})
    assert killed.returncode == -9
    refused = run(binary, "serve", "--listen", "127.0.0.1:0", *store.arguments())
    assert refused.returncode != 0 and "/moved" in refused.stderr
    refused_migrate(binary, "is not finished; run quipu copy again", *PostgresStore(database, tmp_path).arguments())
    done = copy(binary, store, database)
    assert done.returncode == 0, done.stderr
    assert database.query("SELECT count(*) FROM count_values") == [(MANY + 1,)]
    assert database.query("SELECT count(*) FROM (SELECT DISTINCT name, file FROM quipu_copy_tables) AS t")[0][0] > 5
    server = serve(PostgresStore(database, tmp_path), *ALL)
    assert verify(binary, server).returncode == 0


def test_a_database_with_other_rows_is_refused_and_left_alone(moved_from, binary, serve, database, tmp_path):
    store, _, _ = moved_from
    other = serve(PostgresStore(database, tmp_path))
    post(other, "/api/v1/internal/counts", {"itemId": "foreign"})
    other.stop()
    refused = copy(binary, store, database)
    assert refused.returncode == 1 and "count_values of the target has rows" in refused.stderr
    assert database.query("SELECT item_id FROM count_values") == [("foreign",)]
    assert not (store.data / "moved").exists()
    serve(store)


def tables_of(database):
    return database.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")


def test_a_refused_copy_changes_nothing_in_the_database(moved_from, binary, serve, database, tmp_path):
    """Not even the schema, which may be that of an older version."""
    store, _, _ = moved_from
    other = serve(PostgresStore(database, tmp_path))
    post(other, "/api/v1/internal/counts", {"itemId": "foreign"})
    other.stop()
    before = tables_of(database)
    assert copy(binary, store, database).returncode == 1
    assert tables_of(database) == before and ("quipu_copy",) not in before and ("pot",) not in before


def test_a_database_that_is_served_is_refused_and_left_alone(moved_from, binary, serve, database, tmp_path):
    store, _, _ = moved_from
    target = PostgresStore(database, tmp_path)
    server = serve(target, *ALL)
    before = tables_of(database)
    refused = copy(binary, store, database)
    assert refused.returncode == 1 and "a Quipu server uses this database; stop it first" in refused.stderr
    assert tables_of(database) == before and not (store.data / "moved").exists()
    post(server, "/api/v1/internal/counts", {"itemId": "goes-on"})
    assert run(binary, "migrate", *target.arguments()).returncode == 0, "servers do not exclude each other"


def test_a_server_that_waits_to_migrate_counts_as_one(moved_from, binary, serve, database, tmp_path):
    """It has already seen that no copy is unfinished, so none may begin now."""
    store, _, _ = moved_from
    with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(7310579611)")  # that of migrations
        server = serve(PostgresStore(database, tmp_path), ready=False)
        wait_until(lambda: database.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"),
                   "the server waits for the other migration")
        refused = copy(binary, store, database)
    assert refused.returncode == 1 and "a Quipu server uses this database" in refused.stderr
    assert not (store.data / "moved").exists()
    server.wait_ready()


@contextlib.contextmanager
def stopped_copy(binary, store, database):
    """A copy that stands still after its first batch."""
    process = subprocess.Popen([str(binary), "copy", "--from", f"sqlite:{store.data}", "--to", database.url],
                               env=environment({"QUIPU_FAILPOINTS": "copy.batch=stop"}), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), process.communicate(timeout=HANG_S)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=HANG_S)


def test_no_server_and_no_other_copy_uses_the_database_during_a_copy(moved_from, binary, serve, database, tmp_path):
    store, _, _ = moved_from
    target, other = PostgresStore(database, tmp_path), SqliteStore(tmp_path / "other")
    shutil.copytree(store.data, other.data)
    with stopped_copy(binary, store, database) as process:
        refused_migrate(binary, "quipu copy is writing to this database", *target.arguments())
        refused = copy(binary, other, database)
        assert refused.returncode == 1 and "another quipu copy is writing to this database" in refused.stderr
        server = serve(target, *ALL, ready=False)
        wait_until(lambda: "quipu copy is writing" in server.log_text(), "the server says what it waits for")
        assert not server.ready()
        os.kill(process.pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, errors
    server.wait_ready()
    assert verify(binary, server).returncode == 0


def test_a_server_that_reconnects_to_half_a_copy_stays_down(serve, database, tmp_path):
    """As after a failover to a server where the copy was going on."""
    server = serve(PostgresStore(database, tmp_path))
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE quipu_copy (copy_id text, source text, finished_at timestamptz)")
        cursor.execute("INSERT INTO quipu_copy VALUES ('id', '/folder')")
        connection.commit()
    database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                   " WHERE datname = current_database() AND pid <> pg_backend_pid()")
    wait_until(lambda: "the copy from /folder to this database is not finished" in server.log_text(), "it says why")
    assert not server.ready()
    assert server.ask("POST", "/api/v1/internal/counts", {"itemId": "half"}).status == 503
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE quipu_copy SET finished_at = now()")
        connection.commit()
    server.wait_ready()


def test_a_database_whose_state_cannot_be_read_is_not_used(binary, database, tmp_path):
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE quipu_copy (other integer)")
        connection.commit()
    refused_migrate(binary, "finished_at", *PostgresStore(database, tmp_path).arguments())
    assert tables_of(database) == [("quipu_copy",)]


def test_a_folder_that_is_in_use_is_refused(binary, serve, sqlite_store, database):
    serve(sqlite_store)
    refused = copy(binary, sqlite_store, database)
    assert refused.returncode == 1 and "is in use by another quipu" in refused.stderr
    assert database.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_a_file_that_quipu_did_not_write_is_refused(moved_from, binary, database):
    store, _, _ = moved_from
    shutil.copy(store.data / "counts.db", store.data / "counts-backup.db")
    refused = copy(binary, store, database)
    assert refused.returncode == 1 and f"{store.data}/counts-backup.db is not a file that this quipu writes" in refused.stderr
    assert not (store.data / "moved").exists() and tables_of(database) == []
    (store.data / "counts-backup.db").rename(store.data / "counts.db.bak")
    done = copy(binary, store, database)
    assert done.returncode == 0, done.stderr


def test_one_key_for_several_services_is_copied_once_and_never_repeats_anything(moved_from, binary, serve, database, tmp_path):
    """Each file of a folder has its own keys, and the routes of operators have one scope for all services."""
    store, _, _ = moved_from
    server = serve(store, *ALL)
    services = server.ask("GET", "/operator/erase").json()["services"]
    for service in services:
        post(server, f"/operator/erase/{service}", {"userId": "nobody"}, key="erase")
    server.stop()
    with contextlib.closing(sqlite3.connect(store.data / "pots.db")) as file, file:
        kept = "INSERT INTO idempotency_keys SELECT 'POST /operator/erase/{service}', ?, x'00', 200, '', '', x'', '', 0, '', ?"
        file.executemany(kept, [("later", 2_000_000_000_000_000), ("same", 2_000_000_000_000_000)])
    with contextlib.closing(sqlite3.connect(store.data / "counters.db")) as file, file:
        file.executemany(kept.replace("x'00'", "x'01'"), [("later", 2_000_000_000_000_000 - 1), ("same", 2_000_000_000_000_000)])
    done = copy(binary, store, database)
    assert done.returncode == 0 and done.stdout.endswith("and verified\n"), done.stderr
    assert f"{len(services) + 1} Idempotency-Keys of operators were left out" in done.stdout
    rows = database.query("SELECT key, fingerprint FROM idempotency_keys WHERE key IN ('later', 'same') ORDER BY key")
    assert [(key, bytes(fingerprint)) for key, fingerprint in rows] == [("later", b"\0"), ("same", b"\1")]
    actions = database.query("SELECT count(*) FROM operator_actions")
    server = serve(PostgresStore(database, tmp_path), *ALL)
    answers = [server.ask("POST", f"/operator/erase/{service}", {"userId": "nobody"}, {"Idempotency-Key": "erase"})
               for service in services]
    assert sorted(answer.status for answer in answers) == [200] + [409] * (len(services) - 1), answers
    assert database.query("SELECT count(*) FROM operator_actions") == actions


@pytest.mark.parametrize("version, words", [(1, "bring it up to date first, with quipu migrate"), (99, "newer quipu")])
def test_another_schema_is_refused(binary, serve, sqlite_store, database, version, words):
    serve(sqlite_store).stop()
    with contextlib.closing(sqlite3.connect(sqlite_store.data / "counts.db")) as file, file:
        file.execute("DELETE FROM schema_migrations WHERE component = 'counts' AND version > 1")
        file.execute("UPDATE schema_migrations SET version = ? WHERE component = 'counts'", (version,))
    refused = copy(binary, sqlite_store, database)
    assert refused.returncode == 1 and words in refused.stderr
    assert not (sqlite_store.data / "moved").exists()


def test_messages_in_a_local_queue_are_not_left_behind(binary, serve, sqlite_store, database):
    """The server dies after the sender has taken a message and before it has acknowledged it."""
    server = serve(sqlite_store, *ALL, env={"QUIPU_FAILPOINTS": "intake.committed=kill@1"})
    post(server, "/api/config", {"userId": "1", "rateLimit": 5, "timeWindow": 60})
    with contextlib.suppress(ConnectionError, ConnectionLost):
        server.ask("POST", "/api/send", {"userId": "1", "message": "Hello!"})
    server.expect_to_be_killed()
    refused = copy(binary, sqlite_store, database)
    assert refused.returncode == 1, refused.stdout
    assert "1 messages wait in the local queue" in refused.stderr and "start the server" in refused.stderr
    drained = serve(sqlite_store, *ALL)
    wait_until(lambda: drained.metric("quipu_sender_repeated_total") == 1, "the queue delivers it again")
    drained.stop()
    done = copy(binary, sqlite_store, database)
    assert done.returncode == 0, done.stderr


def test_a_copy_that_was_changed_is_noticed(moved_from, binary, database):
    store, _, _ = moved_from
    assert copy(binary, store, database, env={"QUIPU_FAILPOINTS": "copy.marked=kill@1"}).returncode == -9
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE coin SET coin_count = coin_count + 1")
        connection.commit()
    noticed = copy(binary, store, database)
    assert noticed.returncode == 1 and "the table coin differs" in noticed.stderr
    assert "with other contents" in noticed.stderr
    assert f"To start over, or to use the folder again, delete {store.data}/moved" in noticed.stderr


def test_a_copy_that_fails_says_where_things_stand_and_what_to_do(moved_from, binary, database):
    store, _, _ = moved_from
    with contextlib.closing(sqlite3.connect(store.data / "pots.db")) as file, file:
        good = file.execute("SELECT pot_name FROM pot").fetchone()[0]
        file.execute("UPDATE pot SET pot_name = char(0)")
    failed = copy(binary, store, database)
    assert failed.returncode == 1 and "PostgreSQL says" in failed.stderr, failed.stderr
    assert "Until the copy is complete, no server can start on the database, and no server can start on the folder while " \
        f"{store.data}/moved exists." in failed.stderr
    assert "Remove the cause and run quipu copy again" in failed.stderr
    with contextlib.closing(sqlite3.connect(store.data / "pots.db")) as file, file:
        file.execute("UPDATE pot SET pot_name = ?", (good,))
    done = copy(binary, store, database)
    assert done.returncode == 0, done.stderr


def test_old_audit_lines_get_partitions_and_ids_go_on(moved_from, binary, serve, database, tmp_path):
    store, _, _ = moved_from
    with contextlib.closing(sqlite3.connect(store.data / "entitlements.db")) as file, file:
        file.execute("UPDATE entitlement_audit SET occurred_at = 1700000000000000")
    with contextlib.closing(sqlite3.connect(store.data / "pots.db")) as file, file:
        file.execute("UPDATE sqlite_sequence SET seq = 41 WHERE name = 'pot'")
        file.execute("UPDATE pot SET lock = ?, lock_expire_time = 1", (OWNER.upper(),))
    before = sorted(path.name for path in store.data.iterdir())
    done = copy(binary, store, database)
    assert done.returncode == 0, done.stderr
    assert database.query("SELECT lock::text FROM pot") == [(OWNER,)]
    assert sorted(path.name for path in store.data.iterdir()) == sorted([*before, "moved"])
    assert database.query("SELECT count(*) FROM entitlement_audit_y2023m11") == [(1,)]
    server = serve(PostgresStore(database, tmp_path), "--roles", "pots")
    assert post(server, "/twirp/pyggpot.pot.Pot/CreatePot", {"pot_name": "later", "max_coins": 10}).json()["pot_id"] == 42


def test_two_databases_do_not_get_one_folder(moved_from, binary, postgres_server, database):
    store, _, _ = moved_from
    assert copy(binary, store, database, env={"QUIPU_FAILPOINTS": "copy.batch=kill@2"}).returncode == -9
    second = postgres_server.create_database()
    try:
        refused = copy(binary, store, second)
        assert refused.returncode == 1 and "is not finished" in refused.stderr and database.url.rsplit("/")[-1] in refused.stderr
    finally:
        second.drop()


def test_two_folders_do_not_get_one_database(moved_from, binary, database, tmp_path):
    store, _, _ = moved_from
    other = SqliteStore(tmp_path / "other")
    shutil.copytree(store.data, other.data)
    assert copy(binary, store, database, env={"QUIPU_FAILPOINTS": "copy.batch=kill@1"}).returncode == -9
    refused = copy(binary, other, database)
    assert refused.returncode == 1, refused.stdout
    assert "not from this copy" in refused.stderr or "is not finished" in refused.stderr


@pytest.mark.parametrize("arguments, words", [
    (["--from", "postgres://host/db"], "--from must be sqlite:DIR"),
    (["--to", "sqlite:"], "name the target"),
    (["--to", "postgres://u:secret@host/db"], "everybody on this machine can see the password"),
    (["--from", "sqlite:/nowhere", "--to", "postgres://host/db"], "no data folder"),
    (["word"], "usage"),
])
def test_wrong_arguments_are_refused(binary, tmp_path, arguments, words):
    refused = run(binary, "copy", "--data", tmp_path, *arguments)
    assert refused.returncode == 2 and words in refused.stderr and "secret" not in refused.stderr


def test_the_password_may_come_from_the_environment(binary, serve, sqlite_store, database):
    serve(sqlite_store).stop()
    url = database.url.replace("@", ":unused@", 1) if "@" in database.url else database.url
    done = run(binary, "copy", "--from", f"sqlite:{sqlite_store.data}", env={"QUIPU_STORE": url})
    assert done.returncode == 0, done.stderr
    assert "unused" not in done.stdout + (sqlite_store.data / "moved").read_text()


def test_the_commands_of_the_page_work_in_their_order(moved_from, binary, serve, database, tmp_path):
    """But for createdb and systemctl, which the fixtures stand for."""
    store, _, _ = moved_from
    text = "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    shown = [shlex.split(line) for line in text.splitlines() if line.strip()]
    assert [" ".join(words[:2]) for words in shown] == [
        "createdb quipu", "export QUIPU_STORE=postgres://quipu@db.example.org/quipu", "curl http://127.0.0.1:8080/metrics",
        "systemctl stop", "quipu copy", "quipu serve", "quipu verify"]
    before = serve(store, *ALL)
    assert any(name.startswith(shown[2][-1]) for name in before.metrics())
    before.stop()
    done = run(binary, *[word.replace("/var/lib/quipu", str(store.data)) for word in shown[4][1:]],
               env={"QUIPU_STORE": database.url})
    assert done.returncode == 0 and re.search(r"\d+ rows of \d+ tables moved from .* to .*, and verified", done.stdout), done
    assert shown[5][2:] == ["--data", "/var/lib/quipu/local"], "a folder that a service may write to"
    server = serve(PostgresStore(database, tmp_path), *ALL, "--data", store.data / "local")
    assert verify(binary, server, *shown[6][2:]).returncode == 0


def on_a_terminal(binary, *arguments, env=None):
    """The exit status, and what a command draws on a terminal."""
    master, slave = pty.openpty()
    try:
        done = subprocess.run([str(binary), *map(str, arguments)], env=environment(env), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=slave, timeout=HANG_S, check=False)
        os.close(slave)
        drawn = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(master, 65536):
                drawn += piece
        return done.returncode, drawn.decode()
    finally:
        os.close(master)


def test_progress_is_shown_on_a_terminal_and_erased_at_the_end(moved_from, binary, serve, database, tmp_path):
    store, _, _ = moved_from
    quiet = ["--log-level", "error"]
    code, drawn = on_a_terminal(binary, "copy", "--from", f"sqlite:{store.data}", "--to", database.url, *quiet)
    assert code == 0 and re.search(r"copying +\[[=> ]+\] +\d+ % +\d+ s", drawn) and drawn.endswith("\r\x1b[K"), drawn
    target = PostgresStore(database, tmp_path)
    code, drawn = on_a_terminal(binary, "migrate", *target.arguments(), *quiet)
    assert code == 0 and "waiting for the stores" in drawn and drawn.endswith("\r\x1b[K")
    server = serve(target, *ALL)
    code, drawn = on_a_terminal(binary, "verify", "--server", f"http://127.0.0.1:{server.port}")
    assert code == 0 and re.search(r"entitlements +\d+ s", drawn) and drawn.endswith("\r\x1b[K")

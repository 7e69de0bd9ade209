"""An upgrade from the previous release: what it left behind is served, both versions can run side by side while new
features are unused, and there is no way back without a backup, which the older program says."""

import concurrent.futures
import contextlib
import os
import pathlib
import sqlite3
import subprocess

import pytest

from harness import previous
from harness.quipu import Quipu, run

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def upgraded(request, serve):
    """A server of this version on what the previous one has left behind."""
    if request.param == "sqlite":
        store = request.getfixturevalue("sqlite_store")
        previous.restore_sqlite(store.data)
    else:
        store = request.getfixturevalue("postgres_store")
        previous.restore_postgres(store.database)
    return serve(store, "--roles", "all", env=previous.clock_then())


def test_the_data_of_the_previous_version_is_served_and_can_be_changed(upgraded):
    previous.check_values(upgraded)
    previous.check_answers_to_retries(upgraded)
    previous.check_values(upgraded)
    previous.go_on(upgraded)


def test_the_data_of_the_previous_version_keeps_every_rule(upgraded, binary):
    done = run(binary, "verify", "--server", f"http://127.0.0.1:{upgraded.port}", env=previous.clock_then())
    assert done.returncode == 0, done.stdout + done.stderr


# ---- no way back


def test_an_older_program_refuses_the_file_of_a_newer_one_and_says_what_to_do(binary, sqlite_store):
    arguments = ["migrate", "--roles", "counts", *sqlite_store.arguments()]
    assert run(binary, *arguments).returncode == 0
    with contextlib.closing(sqlite3.connect(sqlite_store.data / "counts.db")) as file, file:
        file.execute("INSERT INTO schema_migrations VALUES ('counts', 99, 'from_the_future', 0)")
    done = run(binary, *arguments)
    assert done.returncode == 1
    assert "newer" in done.stderr and "restore a backup" in done.stderr and "99" in done.stderr


def test_an_older_program_refuses_the_database_of_a_newer_one_and_says_what_to_do(binary, postgres_store):
    arguments = ["migrate", "--roles", "counts", "--deadline", "2s"]
    assert run(binary, *arguments, *postgres_store.arguments()).returncode == 0
    postgres_store.database.query("INSERT INTO schema_migrations (component, version, name) VALUES ('counts', 99, 'x')")
    done = run(binary, *arguments, *postgres_store.arguments())
    assert done.returncode == 1
    assert "newer" in done.stderr and "restore a backup" in done.stderr and "99" in done.stderr


# ---- both versions at once


@pytest.fixture(scope="module")
def previous_program(tmp_path_factory):
    """The program of the previous release: QUIPU_PREVIOUS, or built from the history."""
    if "QUIPU_PREVIOUS" in os.environ:
        return pathlib.Path(os.environ["QUIPU_PREVIOUS"])
    folder = tmp_path_factory.mktemp("previous")
    sources = subprocess.run(["git", "archive", previous.COMMIT], cwd=ROOT, capture_output=True, check=False)
    if sources.returncode != 0:
        pytest.skip(f"the history does not have {previous.COMMIT}")
    subprocess.run(["tar", "-x", "-C", folder], input=sources.stdout, check=True)
    for command in (["meson", "setup", "build", "-Dtest_build=true"], ["ninja", "-C", "build", "quipu"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode != 0:
            pytest.skip(f"version {previous.VERSION} cannot be built here: {done.stdout.strip().splitlines()[-1]}")
    return folder / "build/quipu"


def change(server, number):
    """One change of each service; True if all were acknowledged."""
    headers = {"Idempotency-Key": f"change-{number}"}
    item = previous.post(server, "/api/v1/counts/visits/increase", {}, headers)
    coins = {"pot_id": 1, "coins": [{"kind": "GOLD", "count": 1}]}
    previous.post(server, "/twirp/pyggpot.coin.Coin/AddCoins", coins, headers)
    grant = {"user_id": f"u_{number}", "stock_keeping_unit": "item1", "reason": "purchase", "purchase_id": f"p_{number}"}
    previous.post(server, "/v1/entitlements/grants", grant, headers)
    return item["value"] > 0


@pytest.mark.full
def test_both_versions_serve_one_database_while_new_features_are_unused(previous_program, serve, postgres_store, tmp_path):
    roles = ["--roles", "counts,pots,entitlements,notifications"]
    old = Quipu(previous_program, [*roles, *postgres_store.arguments()], tmp_path / "old")
    old.start()
    try:
        old.wait_ready()
        previous.post(old, "/api/v1/internal/counts", {"itemId": "visits"})
        previous.post(old, "/twirp/pyggpot.pot.Pot/CreatePot", {"pot_name": "savings", "max_coins": 100000})
        assert change(old, 0)
        new = serve(postgres_store, *roles)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda number: change((old, new)[number % 2], number), range(1, 201)))
        assert change(new, 8), "a retry of what the old version has done may reach the new one"
        old.stop()
    finally:
        old.close()
    assert previous.get(new, "/api/v1/internal/counts/visits")["currentValue"] == 201
    coins = previous.post(new, "/twirp/pyggpot.coin.Coin/ListCoins", {"pot_id": 1})["coins"]
    assert coins == [{"kind": "GOLD", "count": 201}]
    assert all(previous.get(new, f"/v1/users/u_{number}/entitlements")["entitlements"] for number in range(201))


@pytest.mark.full
def test_the_previous_version_cannot_start_on_the_new_schema_and_says_so(previous_program, binary, postgres_store):
    assert run(binary, "migrate", "--roles", "counts", *postgres_store.arguments()).returncode == 0
    done = run(previous_program, "migrate", "--roles", "counts", "--deadline", "2s", *postgres_store.arguments())
    assert done.returncode == 1 and "newer than this program knows" in done.stderr

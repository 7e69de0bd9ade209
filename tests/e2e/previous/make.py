#!/usr/bin/python3
"""Writes what a server leaves behind that was used as harness/previous.py says, as SQL for the test of upgrades.

    make.py PROGRAM FOLDER      e.g. the program of the last release, and tests/e2e/previous/0.1.0

Run it once for every release, before its schema changes, and name that release in harness/previous.py.
"""

import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from engines import shared  # noqa: E402
from harness import previous  # noqa: E402
from harness.quipu import Quipu  # noqa: E402


def use(program, folder, *arguments):
    server = Quipu(program, ["--roles", "all", *arguments], folder / "server")
    server.start()
    try:
        previous.fill(server.wait_ready())
        server.stop()
    finally:
        server.close()


def main(program, target):
    target = pathlib.Path(target)
    (target / "sqlite").mkdir(parents=True, exist_ok=True)
    (target / "made_at").write_text(f"{int(time.time())}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        use(program, folder, "--data", folder / "data")
        previous.dump_sqlite(folder / "data", target / "sqlite")
    with shared.own_postgres() as postgres, tempfile.TemporaryDirectory() as name:
        database = postgres.create_database()
        use(program, pathlib.Path(name), "--store", database.url, "--data", pathlib.Path(name) / "data")
        previous.dump_postgres(database, target / "postgres.sql")


main(*sys.argv[1:])

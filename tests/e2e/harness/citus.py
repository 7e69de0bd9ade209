"""Databases of a Citus cluster, as `quipu migrate --distribute` prepares them."""

import subprocess
import tempfile

from engines.waiting import HANG_S

PREPARED = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"


def migrate(binary, database, *arguments):
    """Runs `quipu migrate` with every role; returns the finished process."""
    with tempfile.TemporaryDirectory() as data:
        return subprocess.run([str(binary), "migrate", *arguments, "--roles", "all", "--store", database.url, "--data",
                               data, "--deadline", "1m"], capture_output=True, text=True, timeout=HANG_S, check=False)


def distribute(binary, database):
    done = migrate(binary, database, "--distribute")
    assert done.returncode == 0, done.stdout + done.stderr
    return database


def prepared_on_workers(database):
    """How many transactions are prepared, and neither committed nor rolled back yet."""
    return sum(rows[0][0] for rows in database.on_workers(PREPARED))

#!/usr/bin/python3
"""Runs a command with QUIPU_CONTRACT_STORE naming a new database of a private PostgreSQL.

with_postgres.py COMMAND [ARGUMENT...]

Exits with the command's code, or with 77 (meson: skipped) where PostgreSQL cannot be had.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from harness.postgres import Postgres, Unavailable  # noqa: E402  (its folder is named above)

SKIPPED = 77


def main(command):
    if not command:
        sys.exit(__doc__)
    try:
        server = Postgres()
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    try:
        server.start()
        url = server.create_database().url
        return subprocess.run(command, env={**os.environ, "QUIPU_CONTRACT_STORE": url}, check=False).returncode
    finally:
        server.close()


sys.exit(main(sys.argv[1:]))

"""A statement for Citus replaces another by its name, so a name that is not there would replace nothing."""

import pathlib
import re

ADAPTER = pathlib.Path(__file__).resolve().parents[2] / "src" / "adapters" / "store" / "postgres"
ON_CITUS_ONLY = {"quipu_two_phases"}  # pg_dialect.two_phases
NAME = re.compile(r'\{\s*"(quipu_\w+)"')


def names_in(files):
    return [name for file in files for name in NAME.findall(file.read_text())]


def test_every_statement_for_citus_replaces_one_that_exists_and_none_is_there_twice():
    of_citus = sorted(ADAPTER.glob("postgres_citus*.c"))
    replacing = names_in(of_citus)
    assert len(replacing) > 30
    assert sorted(set(replacing)) == sorted(replacing)
    replaced = names_in(file for file in ADAPTER.glob("*.c") if file not in of_citus)
    assert set(replacing) - set(replaced) == ON_CITUS_ONLY

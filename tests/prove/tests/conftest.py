"""Judges on trial: hand-made logs and tables, on which each check must find exactly what is wrong."""

import pathlib
import sys

import pytest

PROVE = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROVE), str(PROVE.parent), str(PROVE.parent / "e2e")]

from tests.story import Story  # noqa: E402  (the folders are named above)


@pytest.fixture
def story(tmp_path):
    with Story(tmp_path) as told:
        yield told

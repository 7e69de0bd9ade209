"""Judges on trial: hand-made logs and tables, on which each check must find exactly what is wrong."""

import pathlib
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]

from tests.story import Story  # noqa: E402  (the folder is named above)


@pytest.fixture
def story(tmp_path):
    with Story(tmp_path) as told:
        yield told

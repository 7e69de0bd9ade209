"""The tests keep their own rules: short files, and a map that names every file."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES_MAX = 600


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


@pytest.mark.parametrize("path", tracked("tests/*.c", "tests/*.h", "tests/*.py"))
def test_no_file_of_tests_is_too_long(path):
    assert len((ROOT / path).read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", tracked("tests/e2e/test_*.py", "tests/e2e/ha/test_*.py"))
def test_the_map_of_the_end_to_end_tests_names_every_file(path):
    assert f"`{pathlib.Path(path).relative_to('tests/e2e')}`" in (ROOT / "tests/e2e/README.md").read_text()

"""The planted mistakes fit the sources as they are."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATCHES = sorted((ROOT / "tests/prove/planted").glob("*.patch"))


def test_there_are_at_least_twenty():
    assert len(PATCHES) >= 20


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_planted_mistake_applies_and_says_how_it_is_found(patch):
    header = patch.read_text().partition("\ndiff --git")[0].splitlines()
    assert [line.split(": ")[0] for line in header if line] == ["What", "Only", "Store", "Faults"]
    done = subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

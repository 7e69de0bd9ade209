"""docs/ARCHITECTURE.md stays true: the functions, files and threads that it names exist."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PAGE = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
FOLDERS = "|".join(sorted(path.name for path in SRC.iterdir() if path.is_dir()))

FUNCTIONS = sorted(set(re.findall(r"`(\w+)\(\)`\s+in\s+`([\w/]+\.[ch])`", PAGE)))
FILES = sorted(set(re.findall(rf"`((?:{FOLDERS})/[\w/]+\.[ch])`", PAGE)))
EXAMPLES = {"app/module_x.c", "ports/x_repository.h"}  # of the part on how to add a service


def test_the_page_names_enough_to_check():
    assert len(FUNCTIONS) >= 10 and len(FILES) >= 20


@pytest.mark.parametrize("name, file", FUNCTIONS)
def test_a_function_is_in_the_file_that_the_page_names(name, file):
    assert re.search(rf"^[a-z].*\b{name}\(", (SRC / file).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("file", [file for file in FILES if file not in EXAMPLES])
def test_a_file_exists(file):
    assert (SRC / file).is_file()


def test_the_table_of_threads_names_every_thread():
    named = {name for path in SRC.rglob("*.c") for name in re.findall(
        r'(?:pthread_setname_np\(pthread_self\(\), |loop_start\([^"\n]*)"([\w-]+)"', path.read_text(encoding="utf-8"))}
    table = PAGE[PAGE.index("## Threads"):PAGE.index("## The walk")]
    assert named and sorted(name for name in named if f"`{name}`" not in table) == []

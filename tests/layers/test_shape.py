"""The shape of the code: short functions with few parameters, and files that begin by saying what they are for."""

import pathlib
import re

import pytest

SRC = pathlib.Path(__file__).resolve().parents[2] / "src"
LINES_MAX = 70  # of a function
PARAMETERS_MAX = 6
OPENING_FROM = 150  # lines of a .c file
CALLBACKS = {"on_header", "on_invalid_header", "on_wanted"}  # nghttp2 decides what they take
FUNCTION = re.compile(r"^(?!(?:struct|enum|union|typedef|static const|const)\b[^(]*[={]$)"
                      r"[A-Za-z_][^;{}=]*?\b(\w+)\(([^;{}]*)\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)


def functions_of(text):
    """(name, number of parameters, number of lines) of each function."""
    for found in FUNCTION.finditer(text):
        name, parameters, body = found.groups()
        inner = re.sub(r"\([^()]*\)", "", parameters)  # parameters of callbacks do not count
        yield name, 0 if inner.strip() in ("", "void") else inner.count(",") + 1, body.count("\n")


def files(pattern):
    return [pytest.param(path, id=str(path.relative_to(SRC))) for path in sorted(SRC.rglob(pattern))]


def test_functions_are_found():
    text = "static int add(\n\tint a, int (*b)(int, int))\n{\n\treturn a;\n}\n\nint none(void)\n{\n}\n"
    assert list(functions_of(text)) == [("add", 2, 1), ("none", 0, 0)]


@pytest.mark.parametrize("path", files("*.c"))
def test_functions_are_short_and_take_few_parameters(path):
    for name, parameters, lines in functions_of(path.read_text()):
        assert lines <= LINES_MAX, f"{name}() has {lines} lines"
        assert parameters <= PARAMETERS_MAX or name in CALLBACKS, f"{name}() has {parameters} parameters"


@pytest.mark.parametrize("path", files("*.c"))
def test_a_long_file_begins_with_what_it_is_for(path):
    text = path.read_text()
    assert text.startswith("/*") or len(text.splitlines()) <= OPENING_FROM

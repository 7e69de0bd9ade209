"""Documents that must say what the code says: every option, every error code, every route."""

import json
import pathlib
import re

from harness.keys import Key
from harness.quipu import run
from harness.routes import Route, list_routes

ROOT = pathlib.Path(__file__).resolve().parents[2]


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(text):
    """The rows of all tables, as lists of cells, heads left out."""
    lines = [line.strip("| ") for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [row for at, row in enumerate(cells) if row[0] != "---" and cells[(at + 1) % len(cells)][0] != "---"]


def test_the_configuration_page_is_what_the_program_writes(binary):
    written = run(binary, "help", "configuration").stdout
    assert page("CONFIGURATION.md") == written, "docs/CONFIGURATION.md is out of date: run make docs, and commit it"


def test_the_configuration_page_tells_every_option_its_variable_and_its_default(binary):
    told = {row[0].strip("`").split()[0].removeprefix("--"): row for row in rows(page("CONFIGURATION.md"))
            if row[0].startswith("`--")}
    shown = run(binary, "serve", "--print-config").stdout
    settings = dict(re.findall(r"^([a-z0-9-]+) = (.*?)  ; default$", shown, re.MULTILINE))
    assert told.keys() == settings.keys() and len(told) > 30
    for name, value in settings.items():
        assert told[name][1] == f"`QUIPU_{name.upper().replace('-', '_')}`"
        assert told[name][2].strip("`") == value


def status_table():
    """{code: (HTTP status, whether trying again helps)} of src/base/status.h, and the codes no client sees."""
    text = (ROOT / "src/base/status.h").read_text(encoding="utf-8")
    table = {code: (int(http), retry == "true") for code, http, retry
             in re.findall(r"ROW\((\w+), (\d+), (true|false),", text)}
    codes = list(table)
    return table, {"OK", *codes[codes.index("OUTCOME_UNKNOWN") + 1:]}


def test_the_errors_page_tells_every_code_with_its_status_and_whether_to_try_again():
    table, unseen = status_table()
    told = {row[1].strip("`"): (int(row[0]), row[2] == "yes") for row in rows(page("ERRORS.md")) if row[0].isdigit()}
    assert len(table) > 25
    missing = table.keys() - unseen - told.keys()
    assert not missing, f"docs/ERRORS.md does not tell of {sorted(missing)}"
    assert told == {code: facts for code, facts in table.items() if code not in unseen}
    for row in rows(page("ERRORS.md")):
        assert not row[0].isdigit() or (len(row) == 5 and all(row)), row


def test_the_errors_page_tells_the_codes_that_no_client_sees():
    _, unseen = status_table()
    assert {row[0].strip("`") for row in rows(page("ERRORS.md").split("## Codes that no client sees")[1])} == unseen


def test_every_code_of_the_api_documents_is_on_the_errors_page():
    told = {row[1].strip("`") for row in rows(page("ERRORS.md")) if row[0].isdigit()}
    for document in sorted((ROOT / "api").glob("*.json")):
        json.loads(document.read_text(encoding="utf-8"))
        used = set(re.findall(r'[`"]([A-Z]+(?:_[A-Z]+)+)[`"]', document.read_text(encoding="utf-8")))
        table, _ = status_table()
        assert used & table.keys() <= told, document.name


def test_the_security_page_tells_what_every_route_asks_for(binary, tmp_path):
    table = rows(page("SECURITY.md").split("## Routes")[1].split("\n## ")[0])
    told = [Route(*row[0].strip("`").split(" "), *row[1:]) for row in table]
    assert told == list_routes(binary, cwd=tmp_path), "docs/SECURITY.md is not what quipu routes prints"


def test_the_example_of_a_key_file_on_the_security_page_is_taken(binary, tmp_path, serve, sqlite_store):
    (example,) = re.findall(r"```\n(# id .*?)```", page("SECURITY.md"), re.DOTALL)
    own = Key(binary, "own", "internal")
    (tmp_path / "keys").write_text(f"{example}{own.line}\n")
    server = serve(sqlite_store, "--api-keys", tmp_path / "keys")
    assert server.metrics(own.headers)["quipu_access_keys"] == example.count("\n")


def test_links_between_documents_lead_somewhere():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for path in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"

"""No page shows a command that nobody runs: each one is run by a test, or there is a reason why it is not.

The tests that run the commands of a page do so in the order in which they stand there. Those that belong nowhere else are
at the end of this file."""

import grp
import os
import pathlib
import re
import signal
import subprocess

import pytest

from harness.tls import Certificate
from harness.waiting import HANG_S, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]

# page, heading, how a command begins: the test that runs it
RUN = [
    ("README.md", "Thirty seconds of curl", "", "test_readme.py::test_the_commands_of_the_readme_work_twice"),
    ("README.md", "Two commands", "make ", "test_readme.py::test_the_make_targets_of_the_readme_exist"),
    ("CONTRIBUTING.md", "Build and test", "make format", "test_documented_commands.py::test_the_targets_for_contributors_exist"),
    ("docs/CLIENTS.md", "", "curl ", "test_readme.py::test_the_pages_work_one_after_another_on_one_server"),
    ("docs/COUNTS.md", "", "curl ", "test_readme.py::test_the_pages_work_one_after_another_on_one_server"),
    ("docs/DIALOGS.md", "", "curl -N ", "test_readme.py::test_the_stream_of_the_dialogs_page_is_as_it_is_shown"),
    ("docs/DIALOGS.md", "", "curl [^N]*/operator/", "test_readme.py::test_the_operators_routes_of_the_dialogs_page_work"),
    ("docs/DIALOGS.md", "", "curl ", "test_readme.py::test_the_pages_work_one_after_another_on_one_server"),
    ("docs/DIALOGS.md", "", "quipu ", "test_readme.py::test_the_commands_of_the_dialogs_page_work"),
    ("docs/ENTITLEMENTS.md", "", "(curl|quipu) ", "test_readme.py::test_the_pages_work_one_after_another_on_one_server"),
    ("docs/GATEWAY.md", "From a limit to a signed webhook", "", "test_gateway_walk.py::test_the_walk_leads_to_an_accepted_webhook"),
    ("docs/GATEWAY.md", "", "curl ", "test_readme.py::test_the_pages_work_one_after_another_on_one_server"),
    ("docs/INSTALL.md", "", "(sudo )?make (deb|build|install|image|release)|quipu ",
     "test_readme.py::test_the_commands_of_the_page_on_installing_are_accepted"),
    ("docs/MOVING.md", "How to move", "curl |quipu ", "test_copy.py::test_the_commands_of_the_page_work_in_their_order"),
    ("docs/OPERATIONS.md", "Certificates", "", "test_documented_commands.py::test_the_commands_that_renew_a_certificate"),
    ("docs/OPERATIONS.md", "Survive a broker outage", "",
     "test_entitlements_outage.py::test_the_commands_of_the_page_on_a_broker_outage"),
    ("docs/OPERATIONS.md", "SQLite: .*", "",
     "test_backup.py::test_a_backup_of_sqlite_under_load_is_whole_and_retries_make_it_exact"),
    ("docs/OPERATIONS.md", "PostgreSQL: .*", "",
     "test_backup.py::test_a_backup_of_postgres_under_load_is_whole_and_retries_make_it_exact"),
    ("docs/OPERATIONS.md", "", "quipu ", "test_readme.py::test_the_pages_work_one_after_another_on_one_server"),
    ("docs/POTS.md", "", "curl |POT=", "test_readme.py::test_a_page_works_on_its_own"),
    ("docs/RELIABILITY.md", "How it is proved", "make prove", "test_documented_commands.py::test_the_arguments_of_make_prove_are_accepted"),
    ("docs/SCALING.md", "", "quipu serve ", "test_readme.py::test_the_pages_work_one_after_another_on_one_server"),
    ("docs/SCALING.md", "", "quipu migrate --distribute", "test_citus.py::test_the_command_of_the_page_distributes_the_tables"),
    ("docs/SECURITY.md", "", "quipu (keys|serve) ", "test_readme.py::test_the_pages_work_one_after_another_on_one_server"),
]

# page, how a command begins: why no test runs it as it stands
NOT_RUN = [
    ("CONTRIBUTING.md", "make build", "it builds the program that the tests run"),
    ("CONTRIBUTING.md", "make test", "it runs this test"),
    ("CONTRIBUTING.md", r"\.ci/run", "it runs this test"),
    ("docs/INSTALL.md", "sudo apt install|curl ", "tests/package/test_deb.py installs the package in a root of its own and asks there"),
    ("docs/INSTALL.md", "sudo chown", "the user quipu exists only where the package is installed: tests/package/test_deb.py"),
    ("docs/INSTALL.md", "sudo systemctl", "no systemd runs in the tests; test_install.py checks the unit"),
    ("docs/INSTALL.md", "docker compose", "no Docker runs in the tests; test_compose.py starts what the file describes"),
    ("docs/MOVING.md", "createdb|export QUIPU_STORE|systemctl", "the fixtures of test_copy.py stand for them"),
]


def joined(block):
    """The commands of a block, each on one line, without comments."""
    lines = re.sub(r"(\\|(?<=\|))\n\s*", " ", block).splitlines()
    return [command for command in (re.sub(r"\s+# .*", "", line).strip() for line in lines) if command]


def shown_commands():
    """(page, heading, command) of every block of shell."""
    for page in PAGES:
        heading, text = "", (ROOT / page).read_text(encoding="utf-8")
        for found in re.finditer(r"^#+ ([^\n]*)$|^ *```(?:sh|bash|shell|console)\n(.*?)^ *```$|^ *```\w*\n.*?^ *```$", text,
                                 re.MULTILINE | re.DOTALL):
            if found.group(1):
                heading = found.group(1)
            for command in joined(found.group(2) or ""):
                yield page, heading, command


def runners_of(page, heading, command):
    return [test for of, under, begin, test in RUN
            if of == page and (not under or re.fullmatch(under, heading)) and re.match(begin, command)]


def reasons_of(page, command):
    return [why for of, begin, why in NOT_RUN if of == page and re.match(begin, command)]


def test_every_command_of_every_page_is_run_or_there_is_a_reason():
    shown = list(shown_commands())
    assert len(shown) > 100 and {page for page, _, _ in shown} >= {page for page, *_ in RUN}
    left = [one for one in shown if not runners_of(*one) and not reasons_of(one[0], one[2])]
    assert left == [], "run them in a test, or say in NOT_RUN why not"


def test_every_reason_and_every_test_belongs_to_a_command():
    shown = list(shown_commands())
    first = {runners_of(*one)[0] for one in shown if runners_of(*one)}
    assert {test for *_, test in RUN} == first, "these run no command"
    for page, begin, _ in NOT_RUN:
        assert any(of == page and re.match(begin, command) for of, _, command in shown), (page, begin)


@pytest.mark.parametrize("test", sorted({test for *_, test in RUN}))
def test_the_tests_that_run_commands_are_there_and_read_the_page(test):
    file, name = test.split("::")
    text = (ROOT / "tests/e2e" / file).read_text(encoding="utf-8")
    assert f"def {name}(" in text
    for page in {page for page, *_, runs in RUN if runs == test}:
        assert page in text or page.removeprefix("docs/") in text, f"{file} does not read {page}"


# ---- commands that belong to no other test


def commands_under(page, heading):
    return [command for of, under, command in shown_commands() if (of, under) == (page, heading)]


def test_the_commands_that_renew_a_certificate(serve, sqlite_store, tmp_path):
    """`systemctl reload` is the signal that the unit sends; a machine without the group ssl-cert uses its own."""
    new, place = Certificate(tmp_path / "new", days=60), tmp_path / "etc"
    now = Certificate(place / "tls")
    (tmp_path / "fullchain.pem").write_bytes(new.file.read_bytes())
    (tmp_path / "privkey.pem").write_bytes(new.key.read_bytes())
    server = serve(sqlite_store, *now.arguments(), tls=Certificate.trust(now, new))
    *installs, reload = commands_under("docs/OPERATIONS.md", "Certificates")
    assert len(installs) == 3 and reload == "systemctl reload quipu"
    known = "ssl-cert" in {group.gr_name for group in grp.getgrall()} and os.geteuid() == 0
    script = "set -e\n" + "\n".join(installs).replace("/etc/quipu", str(place))
    script = script if known else script.replace("ssl-cert", grp.getgrgid(os.getegid()).gr_name)
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, timeout=HANG_S)
    assert [oct((place / "tls" / name).stat().st_mode)[-3:] for name in (".", "cert.pem", "key.pem")] == ["750", "640", "640"]
    server.signal(signal.SIGHUP)

    def certificate():
        with server.connect() as connection:
            return connection.socket.getpeercert(binary_form=True)

    wait_until(lambda: certificate() == new.der(), "new connections see the new certificate")


@pytest.mark.parametrize("number", range(3))
def test_the_arguments_of_make_prove_are_accepted(number):
    """The proof itself takes minutes; with --list-faults it only reads its arguments and describes what it would break."""
    shown = commands_under("docs/RELIABILITY.md", "How it is proved")
    assert len(shown) == 3
    recipe = subprocess.run(["bash", "-c", shown[number].replace("make", "make -n", 1)], cwd=ROOT, capture_output=True, text=True,
                            check=True, timeout=HANG_S).stdout
    (start,) = [line for line in recipe.splitlines() if line.startswith("tests/prove/prove.py ")]
    done = subprocess.run(["bash", "-c", f"{start} --list-faults"], cwd=ROOT, capture_output=True, text=True, check=False,
                          timeout=HANG_S)
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 10, done.stderr


def test_the_targets_for_contributors_exist():
    shown = commands_under("CONTRIBUTING.md", "Build and test")
    for command in shown:
        if command.startswith("make "):
            subprocess.run(["make", "-n", *command.split()[1:]], cwd=ROOT, capture_output=True, check=True, timeout=HANG_S)
        else:
            assert os.access(ROOT / command, os.X_OK), command

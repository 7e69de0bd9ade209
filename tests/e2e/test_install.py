"""`make install` into a folder: what is there, the man page, the completion, the unit and how tightly it is shut."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

import pytest

from engines import process
from harness.quipu import environment, run
from harness.waiting import HANG_S, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLED = {
    "bin/quipu": 0o755,
    "lib/systemd/system/quipu.service": 0o644,
    "share/man/man1/quipu.1": 0o644,
    "share/bash-completion/completions/quipu": 0o644,
}
EXPOSURE_MAX = 2.0
SPECIAL_FLAGS = {"config", "print-config", "check-config"}


def make(binary, target, destination, *variables):
    """The build in `binary`'s folder is installed as it is: nothing is built here."""
    done = subprocess.run(
        ["make", "--no-print-directory", target, f"BUILD={binary.parent}", f"DESTDIR={destination}", *variables],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="module")
def installed(binary, tmp_path_factory):
    """What is below DESTDIR/usr/local."""
    destination = tmp_path_factory.mktemp("destination")
    make(binary, "install", destination)
    return destination / "usr/local"


@pytest.fixture(scope="module")
def option_names(binary):
    shown = run(binary, "serve", "--print-config").stdout
    return {line.split(" = ")[0] for line in shown.splitlines()} | SPECIAL_FLAGS


def test_exactly_these_files_are_installed(installed):
    assert files_below(installed.parents[1]) == {f"usr/local/{name}" for name in INSTALLED}
    for name, mode in INSTALLED.items():
        assert (installed / name).stat().st_mode & 0o777 == mode, name
        assert (installed / name).stat().st_size > 500, name


def test_the_installed_program_runs(installed):
    assert re.fullmatch(r"quipu \d+\.\d+\.\d+\n", run(installed / "bin/quipu", "version").stdout)


def test_uninstall_removes_what_install_made_and_nothing_else(binary, tmp_path):
    make(binary, "install", tmp_path, "PREFIX=/usr")
    assert files_below(tmp_path) == {f"usr/{name}" for name in INSTALLED}
    mine = tmp_path / "usr/bin/mine"
    mine.write_text("")
    make(binary, "uninstall", tmp_path, "PREFIX=/usr")
    assert files_below(tmp_path) == {"usr/bin/mine"}


# ---- the man page


def test_the_man_page_tells_of_every_command_and_option(installed, option_names, binary):
    page = (installed / "share/man/man1/quipu.1").read_text().replace("\\-", "-")
    for name in option_names:
        assert f"\n\\fB--{name}\\fR" in page, name
    for name in commands_of(binary):
        assert f"\\fBquipu {name}" in page, name


@pytest.mark.parametrize("program, arguments", [
    ("groff", ["-man", "-Tutf8", "-ww", "-rLL=100n"]),
    ("mandoc", ["-Tlint", "-Wwarning"]),
])
def test_the_man_page_renders_without_a_warning(installed, program, arguments):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *arguments, str(installed / "share/man/man1/quipu.1")], capture_output=True,
                          text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if program == "groff":
        assert "quipu serve" in re.sub(r".\x08", "", done.stdout)  # bold is written by striking twice
    else:
        assert done.stdout == ""


# ---- the list of commands


def commands_of(binary):
    return set(re.findall(r"^  quipu ([a-z-]+)", run(binary, "help").stdout, re.MULTILINE))


def test_the_help_lists_the_commands_that_there_are(binary):
    table = (ROOT / "src/main.c").read_text(encoding="utf-8").split("struct command_entry commands[] = {")[1].split("};")[0]
    assert commands_of(binary) == set(re.findall(r'\{"([a-z-]+)", ', table))


def test_an_unknown_page_of_the_help_is_refused(binary):
    for words in (["woman"], ["man", "bash"]):
        done = run(binary, "help", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "quipu help" in done.stderr


# ---- completion


def complete(installed, *words):
    """What bash offers for the last of the words."""
    script = f"""
        source {shlex.quote(str(installed / 'share/bash-completion/completions/quipu'))}
        complete -p quipu >&2 || exit 1
        COMP_WORDS=({' '.join(shlex.quote(word) for word in ('quipu', *words))})
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _quipu
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-u", "-c", script], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "complete -F _quipu quipu"
    return set(done.stdout.split())


def test_completion_offers_every_option_to_every_command(installed, option_names, binary):
    for command in commands_of(binary):
        offered = complete(installed, command, "--")
        assert {f"--{name}" for name in option_names} <= offered, command


def test_completion_offers_commands_verbs_and_their_flags(installed, binary):
    assert complete(installed, "") == commands_of(binary)
    assert complete(installed, "se") == {"serve"}
    assert {"list", "show", "replay", "discard"} <= complete(installed, "dlq", "")
    assert {"--limit", "--why"} <= complete(installed, "dlq", "--")
    assert complete(installed, "help", "con") == {"configuration"}
    assert complete(installed, "outbox", "--si") == {"--since"}


def test_completion_offers_folders_and_files_where_they_are_wanted(installed, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    assert complete(installed, "serve", "--data", f"{tmp_path}/f") == {f"{tmp_path}/folder"}
    assert complete(installed, "serve", "--config", f"{tmp_path}/f") == {f"{tmp_path}/folder", f"{tmp_path}/file"}
    assert complete(installed, "serve", "--listen", "--") == set()


# ---- the unit


def unit_settings(installed):
    text = (installed / "lib/systemd/system/quipu.service").read_text()
    lines = [line.partition("=") for line in text.splitlines() if line and line[0] not in "#["]
    return [(name, value) for name, _, value in lines]


def systemd_analyze(*arguments):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=HANG_S,
                          check=False)


def test_the_unit_starts_the_program_where_it_was_installed(binary, tmp_path):
    make(binary, "install", tmp_path, "PREFIX=/opt/quipu")
    settings = unit_settings(tmp_path / "opt/quipu")
    assert ("ExecStart", "/opt/quipu/bin/quipu serve") in settings


def test_a_reload_is_the_signal_that_reads_files_again(installed):
    assert ("ExecReload", "/bin/kill -HUP $MAINPID") in unit_settings(installed)


def test_the_settings_that_the_unit_gives_are_accepted(installed, binary, tmp_path):
    given = dict(value.split("=", 1) for name, value in unit_settings(installed) if name == "Environment")
    assert given["QUIPU_DATA"] == "/var/lib/quipu"
    done = run(binary, "serve", "--check-config", cwd=tmp_path, env=given)
    assert done.returncode == 0, done.stderr


def test_the_unit_waits_longer_than_the_program_drains(installed, binary):
    (timeout,) = [int(value) for name, value in unit_settings(installed) if name == "TimeoutStopSec"]
    drain = re.search(r"^drain-timeout = (\d+)s ", run(binary, "serve", "--print-config").stdout, re.MULTILINE)
    assert timeout > int(drain.group(1)) + 2


def test_the_unit_limits_the_memory_above_what_clients_may_take(installed, binary):
    (limit,) = [value for name, value in unit_settings(installed) if name == "MemoryMax"]
    clients = re.search(r"^client-bytes = (\d+) ", run(binary, "serve", "--print-config").stdout, re.MULTILINE)
    assert limit == "1G" and 2 * int(clients.group(1)) < 2**30


def test_systemd_finds_the_unit_shut_tightly(installed):
    unit = installed / "lib/systemd/system/quipu.service"
    done = systemd_analyze("security", "--offline=yes", "--no-pager", unit)
    score = re.search(r"Overall exposure level for quipu.service: ([0-9.]+)", done.stdout)
    assert score, done.stdout + done.stderr
    assert float(score.group(1)) <= EXPOSURE_MAX, done.stdout


def test_systemd_understands_every_line_of_the_unit(installed, tmp_path):
    unit = tmp_path / "quipu.service"
    text = (installed / "lib/systemd/system/quipu.service").read_text()
    unit.write_text(text.replace("/usr/local/bin/quipu", "/bin/true").replace("Documentation=man:quipu(1)\n", ""))
    done = systemd_analyze("verify", unit)
    assert not re.search(r"quipu\.service:\d+", done.stderr), done.stderr
    assert "Unknown" not in done.stderr and "ignoring" not in done.stderr.lower(), done.stderr


def allowed_calls(settings):
    """The system calls that SystemCallFilter leaves, in the words of systemd itself."""
    def expand(words, seen):
        for word in words:
            if word.startswith("@"):
                if word not in seen:
                    seen.add(word)
                    lines = systemd_analyze("syscall-filter", "--no-pager", word).stdout.splitlines()[1:]
                    expand([line.strip() for line in lines if line.strip() and "#" not in line], seen)
            else:
                seen.add(word)
        return seen

    allowed = expand(["@default"], set())
    for name, value in settings:
        if name == "SystemCallFilter" and value.startswith("~"):
            allowed -= expand(value[1:].split(), set())
        elif name == "SystemCallFilter":
            allowed |= expand(value.split(), set())
    return {call for call in allowed if not call.startswith("@")}


BY_ROOT_ONLY = {"fchown"}  # SQLite gives the files it makes to the owner of the database


def traced_pid(tracer):
    (child,) = process.children(tracer.pid)
    return child


def end_traced(tracer):
    """Ends both, where they still run: a tracer that is killed lets go of its program."""
    if tracer.poll() is None:
        os.kill(traced_pid(tracer), signal.SIGKILL)
        tracer.wait(HANG_S)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_the_program_makes_only_system_calls_that_the_unit_allows(installed, binary, tmp_path):
    """No systemd runs the tests, so the calls of a whole life are compared with what the filter lets through."""
    allowed = allowed_calls(unit_settings(installed))
    assert len(allowed) > 150 and "ptrace" not in allowed
    trace, output = tmp_path / "trace", tmp_path / "stdout"
    with output.open("wb") as stdout, (tmp_path / "stderr").open("wb") as stderr:
        tracer = process.start(
            ["strace", "-f", "-qq", "-o", trace, binary, "serve", "--listen", "127.0.0.1:0", "--data", "data"],
            cwd=tmp_path, env=environment({"ASAN_OPTIONS": "detect_leaks=0"}), stdout=stdout, stderr=stderr)
    try:
        line = wait_until(lambda: re.search(r"http://(127\.0\.0\.1:(\d+))", output.read_text()), "it listens")
        address = f"http://{line.group(1)}"
        for request in (["-d", '{"itemId":"a"}', "/api/v1/internal/counts"], ["-d", "", "/api/v1/counts/a/increase"],
                        ["-d", '{"userId":1,"rateLimit":5,"timeWindow":1}', "/api/config"],
                        ["-d", '{"userId":1,"message":"hello"}', "/api/send"], ["/readyz"], ["/metrics"]):
            *options, path = request
            done = subprocess.run(["curl", "-sS", "-f", "-H", "Content-Type: application/json", *options, address + path],
                                  capture_output=True, text=True, timeout=HANG_S, check=False)
            assert done.returncode == 0, done.stderr
        wait_until(lambda: "SMS SENT" in output.read_text(), "the sender has sent")
        os.kill(traced_pid(tracer), signal.SIGTERM)
        assert tracer.wait(HANG_S) == 0
    finally:
        end_traced(tracer)
    made = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", trace.read_text(errors="replace"), re.MULTILINE))
    assert {"accept4", "openat", "futex"} <= made
    assert made - allowed - BY_ROOT_ONLY == set()

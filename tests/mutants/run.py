#!/usr/bin/python3
"""Plants one fault at a time into a copy of the sources and expects a named suite to fail: see README.md.

Usage: tests/mutants/run.py [NAME ...]     names of patches beside this file; none: all of them
"""
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCHES = ROOT / "tests/mutants"
TREE = ROOT / "build-mutants/tree"
BUILD = TREE / "build-asan"
HANG_S = 600  # ends a suite that hangs; the fault is not caught then, because no test said so
ENGINE_MISSING = 77  # how the scripts that start servers say that theirs cannot be had

RUNNING = re.compile(r"^\[ RUN +\] (\S+)")
PASSED = re.compile(r"^\[ +OK \] (\S+)")
FAILED = re.compile(r"^\[ +FAILED +\] (\S+)$")
PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (?:\S*/)?(\S+\.py::.+?)(?: - .*)?$")
PYTEST_SKIPPED = re.compile(r"^\d+ skipped(?!.* passed)", re.MULTILINE)
SANITIZER = re.compile(r"^SUMMARY: (\S+Sanitizer: (?:\d+ byte\(s\) leaked|\S+))")


class Broken(Exception):
    """The mutant shows nothing: it does not apply or compile, or its suite cannot be judged."""


@dataclasses.dataclass
class Mutant:
    name: str
    what: str
    suite: str
    outcome: str = ""
    seconds: float = 0


@dataclasses.dataclass
class Program:
    target: str  # what ninja has to build for it
    command: list
    env: dict = dataclasses.field(default_factory=dict)


def read_mutant(path):
    header = path.read_text().partition("\ndiff --git")[0]
    fields = dict(line.split(": ", 1) for line in header.splitlines() if ": " in line)
    if "What" not in fields or "Suite" not in fields:
        sys.exit(f"{path.name} does not begin with the lines What: and Suite:")
    return Mutant(path.stem, fields["What"], fields["Suite"])


def read_mutants(names):
    known = {path.stem: path for path in sorted(PATCHES.glob("*.patch"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no patch has the name {' or '.join(unknown)}; there are: {' '.join(known)}")
    return [read_mutant(known[name]) for name in names or known]


# ---- the copy, so that the checkout is never changed ---------------------------------------------------------


def run_git(*words, check=True):
    return subprocess.run(["git", *words], cwd=ROOT, check=check, capture_output=True, text=True)


def source_files():
    """Everything of the working tree that git does not ignore."""
    listed = run_git("ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def copied_files():
    for folder, folders, files in os.walk(TREE):
        if pathlib.Path(folder) == TREE and BUILD.name in folders:
            folders.remove(BUILD.name)
        for file in files:
            yield str((pathlib.Path(folder) / file).relative_to(TREE))


def synchronize():
    """Makes the copy equal to the working tree. Writes only files that differ, so that ninja rebuilds only those; they
    get a new time, because what was built of their old content would look newer than they are."""
    wanted = source_files()
    for name in set(copied_files()) - wanted:
        (TREE / name).unlink()
    for name in wanted:
        copy = TREE / name
        if not copy.exists() or copy.read_bytes() != (ROOT / name).read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)


@contextlib.contextmanager
def planted(mutant):
    """The fault is in the copy while this lasts."""
    patch = PATCHES / f"{mutant.name}.patch"
    touched = [TREE / name for name in re.findall(r"^--- a/(.+)$", patch.read_text(), re.MULTILINE)]
    before = {path: path.read_bytes() for path in touched if path.exists()}
    done = run_git("apply", f"--directory={TREE.relative_to(ROOT)}", str(patch), check=False)
    if done.returncode != 0:
        raise Broken(f"the patch does not apply: {done.stderr.strip()}")
    try:
        yield
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def build(runner, targets):
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", str(BUILD), "-Dtests=true", "-Dtest_build=true", "-Dwerror=true",
                        "-Db_lundef=false", *runner.MESON_OPTIONS[BUILD.name]],
                       cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(["ninja", "--quiet", "-C", str(BUILD), *sorted(targets)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Broken(f"it does not compile:\n{done.stdout[-4000:]}")


# ---- suites ----------------------------------------------------------------------------------------------------------


def load_runner():
    """The copy of tests/run.py, which knows the options of the build and the servers of the contract suites."""
    spec = importlib.util.spec_from_file_location("quipu_tests", TREE / "tests/run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contract_program(runner, port, engine):
    """The suite of a port on an engine, inside the script that starts the server where it needs one."""
    for a_port, an_engine, env, wrapper in runner.CONTRACTS:
        if (a_port, an_engine) == (port, engine):
            target = f"tests/contract/{port}_contract"
            return Program(target, runner.with_server(wrapper, BUILD / target), env)
    raise Broken(f"there is no contract suite of {port} on {engine}")


def program_of(runner, suite):
    """The forms of a suite: unit PROGRAM, fuzz TARGET, contract PORT ENGINE, e2e FILE[::TEST]."""
    kind, _, name = suite.partition(" ")
    if kind == "unit":
        return Program(f"tests/unit/{name}", [str(BUILD / "tests/unit" / name)])
    if kind == "fuzz":
        target = f"tests/fuzz/replay_{name}"
        return Program(target, [str(BUILD / target), str(TREE / "tests/fuzz/corpus" / name)])
    if kind == "contract":
        return contract_program(runner, *name.split())
    if kind == "e2e":
        pytest = ["/usr/bin/python3", "-m", "pytest", "-q", "-x", "-rfE", "--no-header", "--color=no",
                  "-p", "no:cacheprovider", name]
        return Program("quipu", pytest, {"QUIPU": str(BUILD / "quipu")})
    raise Broken(f"nothing is known about the suite {suite}")


def read_all(process, terminal):
    """What the program says until it ends, which a terminal hears line by line, even if it aborts."""
    said, until = b"", time.monotonic() + HANG_S
    while True:
        ended = process.poll() is not None
        if select.select([terminal], [], [], 0 if ended else 1)[0]:
            try:
                said += os.read(terminal, 65536)
            except OSError:  # nobody has the other end any more
                process.wait(max(1, until - time.monotonic()))
                return said.decode(errors="replace")
        elif ended:
            return said.decode(errors="replace")
        if time.monotonic() > until:
            raise subprocess.TimeoutExpired(process.args, HANG_S)


def run_program(program):
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(program.command, cwd=TREE, env={**os.environ, **program.env}, stdin=subprocess.DEVNULL,
                               stdout=other_end, stderr=other_end, start_new_session=True)
    os.close(other_end)
    try:
        return read_all(process, terminal), process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise Broken(f"its suite was not done in {HANG_S} s and no test said why") from None
    finally:
        os.close(terminal)


def failures_in(output):
    """The tests that failed and the one that ran when the program crashed; else what a sanitizer found at the end."""
    lines = output.replace("\r", "").splitlines()
    failed, running = {}, ""
    for line in lines:
        if match := FAILED.match(line) or PYTEST_FAILED.match(line):
            failed[match[1]] = True
        if match := RUNNING.match(line):
            running = match[1]
        elif (match := PASSED.match(line) or FAILED.match(line)) and match[1] == running:
            running = ""
    if running:
        failed[f"{running} (crashed)"] = True
    return list(failed) or [match[1] for match in map(SANITIZER.match, lines) if match]


def run_suite(program):
    """Returns what failed (nothing if the suite passes) and the output."""
    output, code = run_program(program)
    if code == ENGINE_MISSING or PYTEST_SKIPPED.search(output):
        raise Broken("the server of its suite cannot be had here")
    failures = failures_in(output) if code else []
    if code and not failures:
        raise Broken(f"its suite ended with {code} and named no test:\n{output[-4000:]}")
    return failures, output


# ---- the run ---------------------------------------------------------------------------------------------------------


def check_suites(programs):
    """A suite that fails without a fault catches nothing. Returns what is wrong with each such suite."""
    wrong = {}
    for suite, program in programs.items():
        started = time.monotonic()
        try:
            failures, output = run_suite(program)
            if failures:
                wrong[suite] = f"the suite fails by itself: {', '.join(failures)}"
                print(output[-8000:])
        except Broken as reason:
            wrong[suite] = f"without the fault, {reason}"
        print(f"  {suite}: {wrong.get(suite, 'passes')} ({time.monotonic() - started:.0f} s)", flush=True)
    return wrong


def try_mutant(runner, mutant, program):
    try:
        with planted(mutant):
            build(runner, [program.target])
            failures, _ = run_suite(program)
        shown = ", ".join(failures[:3]) + (f" and {len(failures) - 3} more" if len(failures) > 3 else "")
        return ("caught", f"caught by {shown}") if failures else ("SURVIVED", "SURVIVED")
    except Broken as reason:
        return "BROKEN", f"BROKEN: {reason}"


def run_mutants(runner, mutants, programs, wrong):
    for mutant in mutants:
        started = time.monotonic()
        if mutant.suite in wrong:
            mutant.outcome, said = "BROKEN", f"BROKEN: {wrong[mutant.suite]}"
        else:
            mutant.outcome, said = try_mutant(runner, mutant, programs[mutant.suite])
        mutant.seconds = time.monotonic() - started
        print(f"  {mutant.name}: {said} ({mutant.seconds:.0f} s)", flush=True)


def print_table(mutants):
    rows = [("mutant", "result", "s", "what", "suite")]
    rows += [(m.name, m.outcome, f"{m.seconds:.0f}", m.what, m.suite) for m in mutants]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main(names):
    mutants = read_mutants(names)
    synchronize()
    runner = load_runner()
    programs = {mutant.suite: program_of(runner, mutant.suite) for mutant in mutants}
    print("building without a fault", flush=True)
    build(runner, {program.target for program in programs.values()})
    print("suites without a fault", flush=True)
    wrong = check_suites(programs)
    print("mutants", flush=True)
    run_mutants(runner, mutants, programs, wrong)
    print_table(mutants)
    caught = sum(mutant.outcome == "caught" for mutant in mutants)
    print(f"{caught} passed, {len(mutants) - caught} failed")
    return 0 if caught == len(mutants) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Broken as without:
        sys.exit(f"without a fault, {without}")

#!/usr/bin/python3
"""Plants one fault at a time into a copy of the sources and expects a named suite to fail.

Usage: tests/mutants/run.py [NAME ...]     names of patches beside this file; none: all of them

The copy lies in build-mutants/tree, so the checkout is never changed. See README.md beside this file.
"""
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from runner.copied_tree import CopiedTree, DoesNotApply, read_header  # noqa: E402  (its folder is named above)

PATCHES = ROOT / "tests/mutants"
TREE = CopiedTree(ROOT / "build-mutants/tree")
FAILED = re.compile(r"^==== FAILED (.*)$", re.MULTILINE)
TOTALS = re.compile(r"^(\d+) passed, (\d+) failed", re.MULTILINE)


class Broken(Exception):
    """The mutant shows nothing: it does not apply or compile, or its suite cannot be judged."""


@dataclasses.dataclass
class Mutant:
    name: str
    what: str
    suite: str
    outcome: str = ""
    seconds: float = 0


def read_mutant(path):
    """The lines before the diff say what is wrong and which suite notices."""
    fields = read_header(path)
    if "What" not in fields or "Suite" not in fields:
        sys.exit(f"{path.name} does not begin with the lines What: and Suite:")
    return Mutant(path.stem, fields["What"], fields["Suite"])


def read_mutants(names):
    known = {path.stem: path for path in sorted(PATCHES.glob("*.patch"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no patch has the name {' or '.join(unknown)}; there are: {' '.join(known)}")
    return [read_mutant(known[name]) for name in names or known]


# ---- suites ----------------------------------------------------------------------------------------------------------


def run_suite(suite):
    """Runs it in the copy with the copy's own tests/run.py. Returns the names of the tests that failed."""
    target = ["--build", "quipu"] if suite.startswith("tests/e2e/") else []
    env = {**os.environ, "QUIPU_KAFKA_JARS": os.environ.get("QUIPU_KAFKA_JARS", str(ROOT / "build-kafka"))}
    done = subprocess.run(["/usr/bin/python3", "tests/run.py", suite, *target], cwd=TREE.folder, env=env,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    failed = FAILED.findall(done.stdout)
    totals = TOTALS.search(done.stdout)
    if totals is None or "build" in failed:
        raise Broken(f"it does not build or run:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    if totals.group(1) == "0" and not failed:
        raise Broken(f"its suite runs no test here:\n{done.stdout[-1000:]}")
    return failed


def check_suites(suites):
    """A suite that fails without a fault catches nothing. Returns what is wrong with each such suite."""
    wrong = {}
    for suite in suites:
        started = time.monotonic()
        try:
            failures = run_suite(suite)
            if failures:
                wrong[suite] = f"the suite fails by itself: {', '.join(failures)}"
        except Broken as reason:
            wrong[suite] = f"without the fault, {reason}"
        print(f"  {suite}: {wrong.get(suite, 'passes')} ({time.monotonic() - started:.0f} s)", flush=True)
    return wrong


# ---- the run ---------------------------------------------------------------------------------------------------------


def try_mutant(mutant):
    try:
        TREE.plant(PATCHES / f"{mutant.name}.patch")
        failures = run_suite(mutant.suite)
        shown = ", ".join(failures[:3]) + (f" and {len(failures) - 3} more" if len(failures) > 3 else "")
        return ("caught", f"caught by {shown}") if failures else ("SURVIVED", "SURVIVED")
    except (Broken, DoesNotApply) as reason:
        return "BROKEN", f"BROKEN: {reason}"
    finally:
        TREE.synchronize()


def run_mutants(mutants, wrong):
    for number, mutant in enumerate(mutants, 1):
        started = time.monotonic()
        if mutant.suite in wrong:
            mutant.outcome, said = "BROKEN", f"BROKEN: {wrong[mutant.suite]}"
        else:
            mutant.outcome, said = try_mutant(mutant)
        mutant.seconds = time.monotonic() - started
        print(f"  {number}/{len(mutants)} {mutant.name}: {said} ({mutant.seconds:.0f} s)", flush=True)


def print_table(mutants):
    rows = [("mutant", "result", "s", "what", "suite")]
    rows += [(m.name, m.outcome, f"{m.seconds:.0f}", m.what, m.suite) for m in mutants]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main(names):
    mutants = read_mutants(names)
    TREE.synchronize()
    print("suites without a fault", flush=True)
    wrong = check_suites(dict.fromkeys(mutant.suite for mutant in mutants))
    print("mutants", flush=True)
    run_mutants(mutants, wrong)
    print_table(mutants)
    caught = sum(mutant.outcome == "caught" for mutant in mutants)
    print(f"{caught} passed, {len(mutants) - caught} failed")
    return 0 if caught == len(mutants) else 1


sys.exit(main(sys.argv[1:]))

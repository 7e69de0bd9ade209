"""How much of src/ the tests run, per folder, and the least that is accepted."""

import json
import pathlib
import re
import subprocess

from .plan import COVERAGE, ROOT
from .results import FAILED, PASSED, Case

SERVICES_MIN, ONE_SERVICE_MIN, ALL_MIN = 95.0, 90.0, 90.0  # percent of lines


def forget():
    """Drops the counts of earlier runs, which may belong to other sources."""
    for counts in (ROOT / COVERAGE).rglob("*.gcda"):
        counts.unlink()


def percent(files, kind):
    total = sum(file[f"{kind}_total"] for file in files)
    return 100 * sum(file[f"{kind}_covered"] for file in files) / total if total else 100.0


def report():
    """Prints the table. Returns a case for each minimum. coverage.txt has the lines that were not run."""
    details, summary = ROOT / COVERAGE / "coverage.txt", ROOT / COVERAGE / "coverage.json"
    done = subprocess.run(
        ["gcovr", "--root", str(ROOT), str(ROOT / COVERAGE), "--filter", "src/", "--exclude-unreachable-branches",
         "-j", "2", "--txt", str(details), "--json-summary", str(summary)],
        cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [Case("coverage", "-", "gcovr", FAILED, text=done.stderr[-4000:])]
    files = json.loads(summary.read_text())["files"]
    _print_table(files)
    print(f"lines that no test runs: {details.relative_to(ROOT)}")
    return [_gate(name, group, least) for name, group, least in _gates(files)]


def _below(files, folder):
    return [file for file in files if file["filename"].startswith(folder)]


def _print_table(files):
    folders = sorted({str(pathlib.PurePath(file["filename"]).parent) for file in files})
    rows = [(folder, [file for file in files if str(pathlib.PurePath(file["filename"]).parent) == folder])
            for folder in folders]
    rows += [("all services", _below(files, "src/services/")), ("everything", files)]
    print(f"\n{'coverage':<32}{'lines':>10}{'branches':>12}")
    for name, group in rows:
        print(f"{name:<32}{percent(group, 'line'):>8.1f} %{percent(group, 'branch'):>10.1f} %")


def _gates(files):
    services = _below(files, "src/services/")
    names = sorted({match.group(1) for file in services
                    if (match := re.match(r"src/services/(\w+)/", file["filename"]))})
    yield "all services", services, SERVICES_MIN
    for name in names:
        yield f"service {name}", _below(files, f"src/services/{name}/"), ONE_SERVICE_MIN
    yield "everything", files, ALL_MIN


def _gate(name, files, least):
    reached = percent(files, "line")
    outcome = PASSED if reached >= least else FAILED
    return Case("coverage", "-", f"coverage of {name}", outcome,
                text="" if outcome == PASSED else f"{reached:.1f} % of lines run; at least {least:g} % are wanted")

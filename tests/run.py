#!/usr/bin/python3
"""Builds the program for testing, runs every kind of test, and ends with one line of totals.

Usage: tests/run.py [--coverage] [kind ...]     kinds: unit fuzz contract tsan layers e2e
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ["unit", "fuzz", "contract", "tsan", "layers", "e2e"]
MESON_OPTIONS = {
    "build-asan": ["-Db_sanitize=address,undefined", "-Dbuildtype=debugoptimized"],
    "build-tsan": ["-Db_sanitize=thread", "-Dbuildtype=debugoptimized"],
    "build-coverage": ["-Db_coverage=true", "-Dbuildtype=debug"],
}
STAND_IN = "librdkafka's mock cluster"  # with_kafka.py says so where no real Kafka can be had
TOGETHER = 3  # programs at once: most of them wait most of the time, for servers, leases and deadlines
E2E_ALONE = ["test_attack.py", "test_overload.py", "test_streams.py", "test_counters_stream.py", "test_tls.py"]
PROGRAM_MAX_S = 900  # what a program of tests may take; it is killed then, and has failed
ENGINE_MISSING = 77  # how the with_… scripts say that their server cannot be had
# Tests whose point is several threads; the rest would only be slower under TSan.
TSAN_UNIT = ["test_lane", "test_loop", "test_command", "test_stream", "test_hub", "test_tls", "test_token_cache"]
TSAN_FAULTS = [("bus_contract", "with_nats.py"), ("nats_faults", None), ("nats_delivery_faults", None),
               ("redis_waker_faults", None)]
TSAN_CONTRACTS = ["announce", "claim"]
TSAN_E2E = ["test_access_keys.py", "test_concurrency.py", "test_drain.py", "test_pots_concurrency.py",
            "test_tls_certificates.py"]


# Port, engine, environment, and the script that starts a private server around the suite.
CONTRACTS = [
    ("store", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("store", "postgres", {}, "with_postgres.py"),
    ("announce", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("announce", "postgres", {}, "with_postgres.py"),
    ("claim", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("claim", "postgres", {}, "with_postgres.py"),
    ("count_repository", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("count_repository", "postgres", {}, "with_postgres.py"),
    ("counter_repository", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("counter_repository", "postgres", {}, "with_postgres.py"),
    ("entitlement_repository", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("entitlement_repository", "postgres", {}, "with_postgres.py"),
    ("gateway_repository", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("gateway_repository", "postgres", {}, "with_postgres.py"),
    ("message_repository", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("message_repository", "postgres", {}, "with_postgres.py"),
    ("notification_repository", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("notification_repository", "postgres", {}, "with_postgres.py"),
    ("pot_repository", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("pot_repository", "postgres", {}, "with_postgres.py"),
    ("verify", "sqlite", {"QUIPU_CONTRACT_STORE": "sqlite:"}, None),
    ("verify", "postgres", {}, "with_postgres.py"),
    ("cache", "memory", {"QUIPU_CONTRACT_CACHE": "memory:"}, None),
    ("cache", "redis", {}, "with_redis.py"),
    ("bus", "local", {"QUIPU_CONTRACT_BUS": "local:"}, None),
    ("bus", "kafka", {}, "with_kafka.py"),
    ("channel", "log", {"QUIPU_CONTRACT_CHANNEL": "log"}, None),
    ("channel", "webhook", {"QUIPU_CONTRACT_CHANNEL": "webhook"}, None),
    ("bus", "nats", {}, "with_nats.py"),
    ("bus", "rabbitmq", {}, "with_rabbitmq.py"),
]


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.reasons = []
        self.outputs = []  # of what failed: told at the end, where they are found

    def read_junit(self, path):
        for case in xml.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname') or ''} {case.get('name')}".strip()
            skip = case.find("skipped")
            failure = case.find("failure") if case.find("failure") is not None else case.find("error")
            if failure is not None:
                self.fail(name, failure.text or failure.get("message") or "")
            elif skip is not None:
                self.skipped += 1
                self.reasons.append(f"skipped {name}: {skip.get('message') or skip.text or ''}")
            else:
                self.passed += 1

    def skip(self, what, why):
        self.skipped += 1
        self.reasons.append(f"skipped {what}: {' '.join(why)}")

    def fail(self, what, output=""):
        self.failed += 1
        self.reasons.append(f"FAILED  {what}")
        if output:
            self.outputs.append(f"---- {what}\n{output}")

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.reasons += other.reasons
        self.outputs += other.outputs


def run_together(totals, jobs):
    """Runs jobs, each a function that fills totals of its own; reports stand in the order of the jobs."""
    def run(job):
        own = Totals()
        job(own)
        return own

    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        for own in pool.map(run, jobs):
            totals.add(own)


def say_done(label, started):
    print(f"  {label} ({time.monotonic() - started:.0f} s)", flush=True)


def build(folder):
    path = ROOT / folder
    if not (path / "build.ninja").exists():
        subprocess.run(
            ["meson", "setup", str(path), "-Dtests=true", "-Dtest_build=true", "-Dwerror=true",
             "-Db_lundef=false", *MESON_OPTIONS[folder]],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "--quiet", "-C", str(path)], check=True)
    return path


def run_program(command, env):
    command = [str(part) for part in command]
    try:
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, errors="replace",
                              timeout=PROGRAM_MAX_S)
    except subprocess.TimeoutExpired as late:
        said = [(part or b"").decode(errors="replace") for part in (late.stdout, late.stderr)]
        return subprocess.CompletedProcess(command, 1, said[0], f"{said[1]}\nnot done in {PROGRAM_MAX_S} s")


def output_of(done):
    return done.stdout[-2000:] + done.stderr[-6000:]


def run_cmocka(totals, command, env=None, name=None):
    """Runs one cmocka program; a crash that leaves no report is a failure of its own."""
    label, started = name or pathlib.Path(command[-1]).name, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = run_program(command, {**os.environ, **(env or {}), "CMOCKA_MESSAGE_OUTPUT": "xml",
                                     "CMOCKA_XML_FILE": f"{folder}/%g.xml"})
        before = totals.failed
        totals.reasons += [f"note    {label}: {line}" for line in done.stderr.splitlines() if STAND_IN in line]
        if done.returncode == ENGINE_MISSING:
            totals.skip(label, done.stderr.strip().splitlines()[-1:])
        else:
            for report in pathlib.Path(folder).glob("*.xml"):  # one for each group of tests
                totals.read_junit(report)
        if done.returncode not in (0, ENGINE_MISSING) and totals.failed == before:
            totals.fail(f"{label}: ended with {done.returncode}", output_of(done))
        elif totals.failed > before:
            totals.outputs.append(f"---- {label}\n{output_of(done)}")
    say_done(label, started)


def cmocka(command, env=None, name=None):
    """The job of one cmocka program."""
    return lambda totals: run_cmocka(totals, command, env, name)


def run_plain(totals, command, label):
    started = time.monotonic()
    done = run_program(command, os.environ)
    if done.returncode == 0:
        totals.passed += 1
    else:
        totals.fail(label, output_of(done))
    say_done(label, started)


def run_pytest(totals, arguments, env=None):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        done = subprocess.run(
            ["/usr/bin/python3", "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider",
             f"--junitxml={report}", *arguments],
            cwd=ROOT, env={**os.environ, **(env or {})})
        before = totals.failed
        if report.exists():
            totals.read_junit(report)
        if done.returncode != 0 and totals.failed == before:
            totals.fail(f"pytest {' '.join(arguments)} ended with {done.returncode}")


def programs(folder, pattern):
    return sorted(p for p in folder.glob(pattern) if p.is_file() and os.access(p, os.X_OK))


def run_unit(totals, path):
    run_together(totals, [cmocka([str(program)]) for program in programs(path / "tests" / "unit", "test_*")])


def run_fuzz(totals, path):
    for program in programs(path / "tests" / "fuzz", "replay_*"):
        target = program.name.removeprefix("replay_")
        run_plain(totals, [str(program), str(ROOT / "tests/fuzz/corpus" / target)],
                  f"fuzz corpus {target}")


def with_server(wrapper, program):
    """The command that runs a program, inside the script that starts its server."""
    return ["/usr/bin/python3", str(ROOT / "tests/contract" / wrapper), str(program)] if wrapper else [str(program)]


def suites(folder, ports=None, more_env=None, label=""):
    """Each port's suite on each of its engines."""
    return [cmocka(with_server(wrapper, folder / f"{port}_contract"), {**env, **(more_env or {})},
                   f"{port} contract on {engine}{label}")
            for port, engine, env, wrapper in CONTRACTS if not ports or port in ports]


def run_contract(totals, path):
    """What is special to single engines, which takes longest, and the suites."""
    folder = path / "tests" / "contract"
    special = programs(folder, "*_faults") + programs(folder, "sqlite_file")
    run_together(totals, [cmocka([str(program)]) for program in special] + suites(folder))


def run_tsan(totals):
    path = build("build-tsan")
    options = {"TSAN_OPTIONS": "halt_on_error=1 second_deadlock_stack=1"}
    folder = path / "tests" / "contract"
    jobs = [cmocka(with_server(wrapper, folder / name), options, f"{name} {wrapper or ''} under TSan")
            for name, wrapper in TSAN_FAULTS]
    jobs += [cmocka([str(path / "tests" / "unit" / name)], options, f"{name} under TSan") for name in TSAN_UNIT]
    jobs += suites(folder, TSAN_CONTRACTS, options, " under TSan")
    run_together(totals, jobs)
    run_pytest(totals, [str(ROOT / "tests/e2e" / name) for name in TSAN_E2E],
               {**options, "QUIPU": str(path / "quipu"), "QUIPU_LONG_SECONDS": "5"})


def run_e2e(totals, path):
    """Two files at a time, and those by themselves that measure how fast something is."""
    files = sorted((ROOT / "tests/e2e").glob("test_*.py"))
    alone = [str(file) for file in files if file.name in E2E_ALONE]
    others = [str(file) for file in files if file.name not in E2E_ALONE]
    run_pytest(totals, ["-n", "2", "--dist", "loadfile", *others], {"QUIPU": str(path / "quipu")})
    run_pytest(totals, alone, {"QUIPU": str(path / "quipu")})


def forget_coverage(path):
    """What earlier runs have counted, perhaps of other sources."""
    for counts in path.rglob("*.gcda"):
        counts.unlink()


def percent(files, kind):
    total = sum(file[f"{kind}_total"] for file in files)
    return f"{100 * sum(file[f'{kind}_covered'] for file in files) / total:.1f} %" if total else "-"


def print_coverage(totals, path):
    """A line for each folder, one for all services, one for everything; single lines are in coverage.txt."""
    details, summary = path / "coverage.txt", path / "coverage.json"
    done = subprocess.run(
        ["gcovr", "--root", str(ROOT), str(path), "--filter", "src/", "--exclude-unreachable-branches",
         "--txt", str(details), "--json-summary", str(summary)], cwd=ROOT)
    if done.returncode != 0:
        totals.fail("gcovr")
        return
    files = json.loads(summary.read_text())["files"]
    groups = {}
    for file in files:
        groups.setdefault(str(pathlib.PurePath(file["filename"]).parent), []).append(file)
    rows = sorted(groups.items())
    rows.append(("all services", [file for file in files if file["filename"].startswith("src/services/")]))
    rows.append(("the whole project", files))
    print(f"{'coverage':<24}{'lines':>10}{'functions':>12}{'branches':>12}")
    for name, group in rows:
        print(f"{name:<24}{percent(group, 'line'):>10}{percent(group, 'function'):>12}{percent(group, 'branch'):>12}")
    print(f"lines that were not run: {details.relative_to(ROOT)}")


def run_kinds(totals, path, kinds):
    for kind in kinds:
        print(f"{kind} tests", flush=True)
        if kind == "unit":
            run_unit(totals, path)
        elif kind == "fuzz":
            run_fuzz(totals, path)
        elif kind == "contract":
            run_contract(totals, path)
        elif kind == "tsan":
            run_tsan(totals)
        elif kind == "layers":
            run_pytest(totals, [str(ROOT / "tests/layers")])
        elif kind == "e2e":
            run_e2e(totals, path)


def main(arguments):
    coverage = "--coverage" in arguments
    kinds = [a for a in arguments if not a.startswith("-")] or KINDS
    totals = Totals()
    path = build("build-coverage" if coverage else "build-asan")
    if coverage:
        forget_coverage(path)
    try:
        run_kinds(totals, path, [kind for kind in KINDS if kind in kinds and not (coverage and kind == "tsan")])
        if coverage:
            print_coverage(totals, path)
    finally:
        for line in totals.outputs + totals.reasons:
            print(line)
    skipped = f", {totals.skipped} skipped" if totals.skipped else ""
    print(f"{totals.passed} passed, {totals.failed} failed{skipped}")
    return 1 if totals.failed or totals.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

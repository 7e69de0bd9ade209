"""Runs jobs side by side, each as soon as its tree is built, its servers answer and enough slots are free."""

import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

from engines.process import start

from . import builds, plan, results
from .plan import ROOT
from .results import FAILED, PASSED, SKIPPED, Case

SILENCE_MAX_S = 1500  # a job that reports nothing for longer hangs: it is killed, and has failed
ENGINE_MISSING = 77  # how a program says that its server cannot be had
STAND_IN = "librdkafka's mock cluster"  # said where no real Kafka can be had
# pytest compiles every test file with its assertions rewritten: 4 s in each worker, unless it finds what it compiled
# last time.
COMPILED_ONCE = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build-pycache")}


class Execution:
    def __init__(self, jobs, slots, servers, progress):
        self._pending = [dataclasses.replace(job, slots=min(job.slots, slots)) for job in jobs]
        self._slots = slots
        self._servers = servers
        self._progress = progress
        self._changed = threading.Condition()
        self._processes = set()
        self._running = 0
        self._stopping = False
        # in the order of the jobs, so that the tree of the longest one is built first
        trees = {job.tree: plan.targets(jobs, job.tree) for job in jobs if job.tree}
        self._builds = builds.Builds(trees, progress, self._wake)
        self.cases = []
        self.notes = []
        self.seconds = {}  # job -> how long it took

    def run(self):
        self._builds.start()
        self._servers.start(self._wake)
        try:
            self._start_all()
        finally:
            self._stop()

    def _wake(self):
        with self._changed:
            self._changed.notify_all()

    def _start_all(self):
        with self._changed:
            while self._pending or self._running:
                if self._builds.failure:
                    self.cases.append(Case("build", "-", "build", FAILED, text=self._builds.failure))
                    return
                # the first that is ready, even if it has to wait for slots: else small jobs would take every slot
                job = next((job for job in self._pending if self._is_ready(job)), None)
                if job is None or job.slots > self._slots:
                    self._changed.wait(1.0)
                    continue
                self._pending.remove(job)
                self._slots -= job.slots
                self._running += 1
                threading.Thread(target=self._run_job, args=(job,), daemon=True).start()

    def _is_ready(self, job):
        return self._builds.is_ready(job.tree) and all(self._servers.is_ready(name) for name in job.needs)

    def _stop(self):
        """Ends what still runs, which only happens when the run is broken off."""
        with self._changed:
            self._stopping = True
            for process in self._processes:
                process.terminate()
        self._builds.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, 60.0)

    # ---- one job, in a thread of its own

    def _run_job(self, job):
        started = time.monotonic()
        self._progress.started(job)
        try:
            {"cmocka": self._cmocka, "plain": self._plain, "pytest": self._pytest}[job.runner](job)
        except Exception as problem:  # pylint: disable=broad-except # a fault of the runner is a failure of the job
            self._add(Case(job.kind, job.engine, job.name, FAILED, text=repr(problem)))
        self.seconds[job.name] = time.monotonic() - started
        self._progress.finished(job)
        with self._changed:
            self._slots += job.slots
            self._running -= 1
            self._changed.notify_all()

    def _add(self, case):
        with self._changed:
            if self._stopping:
                return
            self.cases.append(case)
        if case.outcome == FAILED:
            self._progress.failed(case)

    def _spawn(self, command, env, output):
        with self._changed:
            assert not self._stopping
            process = start(command, cwd=ROOT, env={**os.environ, **self._servers.environment, **env}, stdout=output,
                            stderr=subprocess.STDOUT, start_new_session=False)
            self._processes.add(process)
        return process

    def _wait(self, process, is_alive=lambda: False):
        """The exit status; None if the process had to be killed. `is_alive` says whether it has reported something since
        it was asked last."""
        deadline = time.monotonic() + SILENCE_MAX_S
        try:
            while True:
                try:
                    return process.wait(0.2)
                except subprocess.TimeoutExpired:
                    if is_alive():
                        deadline = time.monotonic() + SILENCE_MAX_S
                    if time.monotonic() > deadline:
                        process.terminate()  # first, so that it ends the servers it has started
                        try:
                            process.wait(20)
                        except subprocess.TimeoutExpired:
                            process.kill()
                            process.wait()
                        return None
        finally:
            with self._changed:
                self._processes.discard(process)

    def _run_program(self, job, env):
        """Runs a program to its end: its exit status and what it said."""
        with tempfile.TemporaryFile() as output:
            process = self._spawn(job.command, {**job.env, **env}, output)
            status = self._wait(process)
            output.seek(0)
            text = output.read().decode(errors="replace")
        if status is None:
            text += f"\nnot done in {SILENCE_MAX_S} s"
        return status, text

    def _plain(self, job):
        status, text = self._run_program(job, {})
        outcome = PASSED if status == 0 else FAILED
        self._add(Case(job.kind, job.engine, job.name, outcome, text=text[-6000:], rerun=f"tests/run.py {job.name}"))

    def _cmocka(self, job):
        with tempfile.TemporaryDirectory() as folder:
            report = {"CMOCKA_MESSAGE_OUTPUT": "xml", "CMOCKA_XML_FILE": f"{folder}/%g.xml"}
            status, text = self._run_program(job, report)
            cases = [case for path in sorted(pathlib.Path(folder).glob("*.xml"))
                     for case in results.read_cmocka(path, job)]
        results.explain_skips(cases, text)
        self.notes += [f"{job.name}: {line}" for line in text.splitlines() if STAND_IN in line]
        if status == ENGINE_MISSING:
            cases = [Case(job.kind, job.engine, job.name, SKIPPED, text=text.strip().splitlines()[-1])]
        failed = [case for case in cases if case.outcome == FAILED]
        for case in failed:
            case.text += f"\n{text[-6000:]}"
        if status not in (0, ENGINE_MISSING) and not failed:
            cases.append(Case(job.kind, job.engine, f"{job.name} ended with {status}", FAILED, text=text[-6000:],
                              rerun=f"tests/run.py {job.name}"))
        for case in cases:
            self._add(case)

    def _pytest(self, job):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report"
            path.touch()
            env = {**job.env, **COMPILED_ONCE, "QUIPU_PYTEST_REPORT": str(path), "PYTHONPATH": str(ROOT / "tests")}
            command = ["/usr/bin/python3", "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider",
                       "-c", "tests/pytest.ini", f"--rootdir={ROOT}", "-p", "runner.pytest_report", *job.command]
            with path.open(encoding="utf-8") as report, tempfile.TemporaryFile() as output:
                reader = _Reader(report, lambda line: self._pytest_line(job, line))
                process = self._spawn(command, env, output)
                status = self._wait(process, reader.read)
                reader.read()
                output.seek(0)
                text = output.read().decode(errors="replace")
        if status not in (0, 1, 5):  # all passed, some failed, none chosen
            self._add(Case(job.kind, "-", f"{job.name} ended with {status}", FAILED, text=text[-6000:]))

    def _pytest_line(self, job, line):
        if "collected" in line:
            self._progress.collected(job, line["collected"])
        else:
            case = results.read_pytest(line, job)
            self._progress.finished(job, case)
            self._add(case)


class _Reader:
    """Lines of JSON of a file that grows, without repeating what xdist's workers say alike (how many were collected)."""

    def __init__(self, file, use):
        self._file = file
        self._use = use
        self._rest = ""
        self._collected = False

    def read(self):
        """Returns whether there was anything new."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for line in map(json.loads, lines):
            if "collected" in line and self._collected:
                continue
            self._collected = self._collected or "collected" in line
            self._use(line)
        return bool(lines)

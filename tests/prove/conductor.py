"""Lets a schedule happen: one thread per target, which prepares, injects, holds and heals one fault after another.

Everything that happened is kept in `happened` and written to faults.jsonl in the log's folder, a line when a fault
begins and another when it is healed. A fault that cannot be injected or healed is a failure of the run (`failures`); a
process of Quipu that ends by itself is a violation.
"""

import collections
import contextlib
import dataclasses
import json
import threading
import time

from cluster import now_us
from fault import FaultFailed, Violation
from faults import KINDS

CLOSE_S = 20.0


@dataclasses.dataclass
class Happened:
    kind: str
    target: str
    injected_us: int
    healed_us: int | None = None  # when the healing was done: the engine accepts connections again
    detail: str = ""


class Conductor:
    def __init__(self, cluster, schedule, folder):
        self._cluster = cluster
        self._schedule = schedule
        self._file = (folder / "faults.jsonl").open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = []
        self._began = None
        self.happened = []
        self.forgotten = []
        self.failures = []
        self.violations = []

    def start(self):
        self._began = time.monotonic()
        by_target = collections.defaultdict(list)
        for planned in self._schedule.faults:
            by_target[planned.target].append(planned)
        jobs = [(self._run_target, steps) for steps in map(self._steps, by_target.values())]
        for job, *arguments in (*jobs, (self._watch,)):
            thread = threading.Thread(target=job, args=arguments, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def _steps(self, planned_faults):
        """[(when, what to do), …] of one target, in order."""
        steps = []
        for planned in planned_faults:
            fault = KINDS[planned.kind](self._cluster, planned.target, planned.dice)
            if planned.prepare_at_s is not None:
                steps.append((planned.prepare_at_s, lambda fault=fault: self._prepare(fault)))
            steps.append((planned.at_s, lambda fault=fault, hold_s=planned.hold_s: self.perform(fault, hold_s)))
        return sorted(steps, key=lambda step: step[0])

    def _run_target(self, steps):
        for at_s, step in steps:
            if self._ended.wait(max(0.0, self._began + at_s - time.monotonic())):
                return
            step()

    def _prepare(self, fault):
        with self._failures_kept(fault):
            fault.prepare()

    def perform(self, fault, hold_s):
        """One fault from its injection to its end."""
        happened = Happened(fault.name, fault.target, now_us())
        with self._failures_kept(fault):
            detail = fault.inject()
            happened.detail = detail or ""
            with self._lock:
                self.happened.append(happened)
                self.forgotten += fault.forgotten
            self._write(happened, "inject")
            self._ended.wait(hold_s)
        with self._failures_kept(fault):
            detail = fault.heal()
            happened.detail = "; ".join(filter(None, (happened.detail, detail)))
        happened.healed_us = now_us()
        self._write(happened, "heal")
        return happened

    @contextlib.contextmanager
    def _failures_kept(self, fault):
        try:
            yield
        except Violation as violation:
            self.violations.append(str(violation))
        except FaultFailed as failed:
            self.failures.append(str(failed))
        except Exception as problem:  # pylint: disable=broad-except # of a client library: the run is not valid
            self.failures.append(f"{fault.name} on {fault.target}: {type(problem).__name__}: {problem}")

    def _write(self, happened, event):
        with self._lock:
            self._file.write(json.dumps({"t": now_us(), "event": event, **dataclasses.asdict(happened)}) + "\n")
            self._file.flush()

    def active(self):
        """The faults that hold now."""
        with self._lock:
            return [happened for happened in self.happened if happened.healed_us is None]

    def _watch(self):
        """A process that ends by itself is started again, so that the run goes on, and is a violation."""
        while not self._ended.wait(0.2):
            for node in self._cluster.nodes:
                if node.died:
                    self.violations.append(f"quipu-{node.number} ended by itself with status {node.exit_status()}: "
                                           f"{node.log_tail(2000)}")
                    with contextlib.suppress(RuntimeError):
                        node.begin()

    def is_busy(self):
        """Whether a fault holds, or is still to come."""
        return any(thread.is_alive() for thread in self._threads[:-1])

    def close(self):
        """Ends early what is still to come; what holds is healed, as far as that is quick."""
        self._ended.set()
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self._file.close()

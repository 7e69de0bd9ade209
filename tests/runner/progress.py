"""What people see while tests run: one line that says what is being built, what has run, and how long is left.

On a terminal the line is rewritten in place. Elsewhere a new one is printed every ten seconds, so that a log shows that
the run is alive.
"""

import sys
import threading
import time

from .results import FAILED

EVERY_S = 10.0
# Seconds that a job takes if no earlier run has measured it; a test from end to end counts by itself.
USUAL_S = {"cmocka": 3.0, "plain": 0.3, "pytest": 0.25}


class Progress:
    """May be called from any thread."""

    def __init__(self, jobs, times, usual_s=None):
        """`usual_s` is how long the same jobs took last time, builds included."""
        self._lock = threading.Lock()
        self._usual_s = usual_s
        self._terminal = sys.stdout.isatty()
        self._start = time.monotonic()
        self._printed = 0.0
        self._building = ""
        self._running = []
        self._kinds = {}  # kind -> [done, all], in the order of the plan
        self._failed = 0
        self._left = {}  # job -> expected seconds that are left of it
        for job in jobs:
            self._left[job.name] = times.get(job.name, USUAL_S[job.runner])
            self._kinds.setdefault(job.kind, [0, 0])[1] += 0 if job.runner == "pytest" else 1
        self._all_s = sum(self._left.values())

    @property
    def elapsed_s(self):
        return time.monotonic() - self._start

    def building(self, text):
        with self._lock:
            changed = text.split()[:2] != self._building.split()[:2]
            self._building = text
        self._show(now=changed and bool(text))

    def started(self, job):
        with self._lock:
            self._running.append(job.name)
        self._show()

    def collected(self, job, count):
        with self._lock:
            self._kinds[job.kind][1] += count
            self._all_s += max(self._left[job.name], count * USUAL_S["pytest"]) - self._left[job.name]
            self._left[job.name] = max(self._left[job.name], count * USUAL_S["pytest"])
        self._show()

    def finished(self, job, case=None):
        """A job has ended; or, with `case`, one of its tests."""
        with self._lock:
            if case is not None:
                self._kinds[job.kind][0] += 1
                left = self._kinds[job.kind][1] - self._kinds[job.kind][0] + 1
                self._left[job.name] -= self._left[job.name] / max(left, 1)
            else:
                self._running.remove(job.name)
                self._left[job.name] = 0.0
                self._kinds[job.kind][0] += 0 if job.runner == "pytest" else 1
        self._show()

    def failed(self, case):
        assert case.outcome == FAILED
        with self._lock:
            self._failed += 1
            self._write(f"FAILED {case.name}\n")
        self._show(now=True)

    def end(self):
        with self._lock:
            if self._terminal:
                self._write("")

    def _show(self, now=False):
        with self._lock:
            since = time.monotonic() - self._printed
            if self._terminal and (now or since > 0.2):
                self._printed = time.monotonic()
                sys.stdout.write(f"\r\x1b[K{self._line()[:150]}")
                sys.stdout.flush()
            elif not self._terminal and (now or since > EVERY_S):
                self._printed = time.monotonic()
                self._write(self._line() + "\n")

    def _write(self, text):
        sys.stdout.write(("\r\x1b[K" if self._terminal else "") + text)
        sys.stdout.flush()

    def _line(self):
        parts = [clock(self.elapsed_s)]
        if self._building:
            parts.append(self._building)
        parts += [f"{kind} {done}/{total}" for kind, (done, total) in self._kinds.items() if done]
        parts.append(f"{self._failed} failed")
        if self._running:
            parts.append(f"running {', '.join(self._running[:3])}" + (", …" if len(self._running) > 3 else ""))
        left = self._left_s()
        if left is not None:
            parts.append(f"about {clock(left)} left")
        return "  ".join(parts)

    def _left_s(self):
        """From the share of the expected work that is done; while that says nothing, from the last run, if there was one."""
        left = sum(self._left.values())
        share = 1 - left / self._all_s if self._all_s else 1.0
        if share > 0.05 and not self._building:
            return self.elapsed_s / share - self.elapsed_s
        return max(self._usual_s - self.elapsed_s, 0) if self._usual_s else None


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

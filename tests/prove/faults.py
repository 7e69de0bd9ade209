"""The faults of Quipu's own processes, of the network and of the disk; and KINDS, the list of all faults."""

import os
import pathlib
import resource
import time
from email.utils import parsedate_to_datetime

from cluster import LEASE_S
from engine_faults import ENGINE_KINDS
from harness.http import ConnectionLost
from fault import Fault, FaultFailed, NodeFault, Violation, is_reset, order_of_answers, round_trip_s, until
from engines.server import exchange

STARTS_S = 60.0


def start_again(fault, node):
    """As a supervisor does: again and again, because an engine may be away at the moment."""
    deadline = time.monotonic() + STARTS_S
    while True:
        try:
            node.begin()
            return
        except RuntimeError as refused:
            if time.monotonic() > deadline:
                raise FaultFailed(f"{fault.name}: {refused}") from refused


class QuipuKilled(NodeFault):
    """kill -9, and started again."""

    name = "quipu-kill"
    hold_s = (0.2, 3.0)
    weight = 10

    def inject(self):
        pid = self.node.pid
        self.node.crash_now()
        self.expect(not pathlib.Path(f"/proc/{pid}").exists(), "the process is still there")
        return f"pid {pid}"

    def heal(self):
        start_again(self, self.node)


class QuipuStopped(NodeFault):
    """SIGSTOP for longer than leases and clients' timeouts: it wakes up in a world that went on without it."""

    name = "quipu-stop"
    hold_s = (LEASE_S + 3.0, LEASE_S + 7.0)
    weight = 5

    def inject(self):
        self.node.freeze()
        self.expect(self.node.stopped(), "the process runs on")

    def heal(self):
        self.node.thaw()
        self.expect(until(lambda: not self.node.stopped(), 5), "the process is still stopped")


def end_in_order(node):
    """SIGTERM. Another exit status than 0 is a violation."""
    status = node.stop_in_order()
    if status != 0:
        raise Violation(f"SIGTERM ended quipu-{node.number} with status {status}: {node.log_tail(2000)}{node.threads}")


class QuipuRestarted(NodeFault):
    """SIGTERM, as a deployment does it."""

    name = "quipu-restart"
    hold_s = (0.1, 1.0)
    weight = 5

    def inject(self):
        began = time.monotonic()
        end_in_order(self.node)
        return f"drained in {time.monotonic() - began:.1f} s"

    def heal(self):
        start_again(self, self.node)


class QuipuReloaded(NodeFault):
    """SIGHUP: the keys are read again under load."""

    name = "quipu-reload"
    hold_s = (0.1, 0.2)
    rest_s = 0.5
    weight = 3

    def inject(self):
        self.cluster.keys.reload(self.node)

    def heal(self):
        pass


class QuipuWithoutDescriptors(NodeFault):
    """Not one more file or connection can be opened."""

    name = "quipu-descriptors"
    hold_s = (2.0, 5.0)
    weight = 3

    def inject(self):
        self._limits = resource.prlimit(self.node.pid, resource.RLIMIT_NOFILE)
        self.expect(until(lambda: self._tighten() or self._is_refused(), 10), "new connections are still served")
        return f"limit {resource.prlimit(self.node.pid, resource.RLIMIT_NOFILE)[0]}"

    def _tighten(self):
        """Allows no number above the lowest free one. Again and again, because connections that end free others."""
        used = {int(entry) for entry in os.listdir(f"/proc/{self.node.pid}/fd")}
        free = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(self.node.pid, resource.RLIMIT_NOFILE, (free, self._limits[1]))

    def _is_refused(self):
        if round_trip_s("clients", self.node.port, 0.5) is None:
            return True
        return b" 200 " not in exchange(self.node.port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    def heal(self):
        resource.prlimit(self.node.pid, resource.RLIMIT_NOFILE, self._limits)
        self.expect(until(lambda: round_trip_s("clients", self.node.port) is not None, 10), "it serves nobody any more")


class ClockShifted(NodeFault):
    """The wall clock of one process differs from all others: windows, leases and ids must not rely on it."""

    weight = 3
    hold_s = (4.0, 12.0)
    direction = 0
    # Less than the five minutes from which `quipu verify` calls a time impossible, far more than any lease.
    shift_s = (20, 240)

    @classmethod
    def targets(cls, shape):
        return [f"quipu-{shape.nodes}"] if shape.has_clock else []

    def inject(self):
        offset = self.direction * int(self.between(*self.shift_s))
        self._without = self.node.environment
        self._restart({**self._without, **self.node.clock.environment})
        self._set(offset)
        return f"{offset:+d} s"

    def heal(self):
        """The clock jumps back while the process runs; then it goes on without libfaketime."""
        self._set(0)
        self._restart(self._without)

    def _restart(self, environment):
        end_in_order(self.node)
        self.node.environment = environment
        start_again(self, self.node)

    def _set(self, offset):
        """The answers' Date shows the clock."""
        self.node.clock.set(offset)
        self.expect(until(lambda: abs(self._date_offset() - offset) < 5, 15), f"the clock is not at {offset:+d} s")

    def _date_offset(self):
        try:
            date = self.cluster.ask(self.node, "GET", "/healthz").header("Date")
        except (OSError, ConnectionLost):
            return float("inf")
        return parsedate_to_datetime(date).timestamp() - time.time()


class ClockForward(ClockShifted):
    name = "quipu-clock-forward"
    direction = 1


class ClockBack(ClockShifted):
    name = "quipu-clock-back"
    direction = -1


class QuipuUpgraded(NodeFault):
    """One step of a rolling upgrade: SIGTERM to the previous release, and the new one takes its place."""

    name = "quipu-upgrade"
    hold_s = (0.1, 0.5)
    weight = 0  # the schedule places one for each process

    @classmethod
    def targets(cls, shape):
        return super().targets(shape) if shape.has_previous else []

    def inject(self):
        status = self.node.stop_in_order()
        self.node.use(self.cluster.binary)
        return f"the old one ended with {status}"

    def heal(self):
        start_again(self, self.node)
        running = os.readlink(f"/proc/{self.node.pid}/exe")
        self.expect(running == str(self.cluster.binary), f"{running} runs")


# ---- network ---------------------------------------------------------------------------------------------------------


class PathFault(Fault):
    """A fault on the way from one process to one engine, or from clients to one process: target path-ENGINE-N."""

    weight = 4

    @classmethod
    def targets(cls, shape):
        if not shape.has_paths:
            return []
        return [f"path-{end}-{number}" for end in (*shape.engines, "clients") for number in range(1, shape.nodes + 1)]

    @property
    def path(self):
        return self.cluster.proxy.paths[self.target.removeprefix("path-")]

    def round_trip_s(self, timeout=2.0):
        return round_trip_s(self._end, self.path.port, timeout)

    @property
    def _end(self):
        return self.target.split("-")[1]

    def _end_answers(self):
        """Without the path: another fault may have taken the engine away."""
        number = int(self.target.rpartition("-")[2])
        server = self.cluster.nodes[number - 1] if self._end == "clients" else self.cluster.engines[self._end]
        return round_trip_s(self._end, server.port) is not None

    def heal(self):
        self.path.mend()
        if self._end_answers():
            self.expect(until(lambda: self.round_trip_s() is not None or not self._end_answers(), 10),
                        "nothing passes any more")


class PathCut(PathFault):
    """Connections break, and new ones are refused."""

    name = "path-cut"
    hold_s = (0.2, 5.0)
    weight = 8

    def inject(self):
        self.path.cut()


class PathReset(PathFault):
    """Connections are reset, before a request has arrived or before its answer has."""

    name = "path-reset"
    hold_s = (0.5, 4.0)

    def inject(self):
        stream = "upstream" if self.dice < 0.5 else "downstream"
        self.path.reset(stream, int(self.between(0, 200)))
        self.expect(until(lambda: is_reset(self._end, self.path.port) or not self._end_answers(), 10), "no connection was reset")
        return f"of the {'request' if stream == 'upstream' else 'answer'}"


class PathSlow(PathFault):
    """Every packet takes its time, in both directions. A server that greets first sends one packet before the answer,
    which takes the latency less its jitter at least."""

    name = "path-slow"
    hold_s = (2.0, 6.0)

    def inject(self):
        latency_ms = int(self.between(20, 400))
        jitter_ms = latency_ms // 2
        self.path.delay(latency_ms, jitter_ms)
        took_s = self.round_trip_s(5.0)
        self.expect(took_s is None or took_s >= (latency_ms - jitter_ms) / 1000, f"a greeting took only {took_s} s")
        return f"{latency_ms} ms each way"


class PathReorder(PathFault):
    """Every packet takes another time, so requests and answers of different connections overtake each other."""

    name = "path-reorder"
    hold_s = (2.0, 6.0)
    probes = 8

    def inject(self):
        most_ms = int(self.between(100, 400))
        self.path.delay(most_ms // 2, most_ms // 2)
        self.expect(until(self._is_overtaken, 10), "every answer came in the order of the requests")
        return f"0 to {most_ms} ms each way"

    def _is_overtaken(self):
        order = order_of_answers(self._end, self.path.port, self.probes)
        return order != sorted(order) or not self._end_answers()


class PathHalfOpen(PathFault):
    """Connections stay open, and what one side sends never arrives."""

    name = "path-half-open"
    hold_s = (3.0, 9.0)

    def inject(self):
        stream = "upstream" if self.dice < 0.5 else "downstream"
        self.path.silence(stream)
        self.expect(self.round_trip_s(1.0) is None, "an answer came through")
        return f"silent {stream}"


class PathTrickle(PathFault):
    """A few kilobytes per second, so that answers come in pieces."""

    name = "path-trickle"
    hold_s = (2.0, 5.0)
    weight = 3

    def inject(self):
        rate = int(self.between(2, 40))
        self.path.trickle(rate)
        return f"{rate} kB/s"


# ---- disk ------------------------------------------------------------------------------------------------------------


class DiskFault(Fault):
    """A fault of the disk under the store: of PostgreSQL, or of Quipu itself with SQLite."""

    @classmethod
    def targets(cls, shape):
        return ["postgres"] if shape.store == "postgres" else ["quipu-1"]

    @property
    def disk(self):
        return self.cluster.disk


class DiskSlow(DiskFault):
    """Every sync takes long."""

    name = "disk-slow"
    hold_s = (2.0, 5.0)

    def inject(self):
        sync_us = int(self.between(5_000, 150_000))
        self._before = self.disk.slowed
        self.disk.slow(sync_us)
        self.expect(until(lambda: self.disk.slowed > self._before, 10), "no sync was slow")
        return f"{sync_us // 1000} ms per sync"

    def heal(self):
        self.disk.heal()
        return f"{self.disk.slowed - self._before} syncs were slow"


class DiskFull(DiskFault):
    """No file can grow any more."""

    name = "disk-full"
    hold_s = (1.0, 4.0)
    rest_s = 4.0
    weight = 3

    def inject(self):
        self._before = self.disk.refused
        self.disk.fill()
        if self.cluster.store == "postgres":
            self._use_space()
        self.expect(until(lambda: self.disk.refused > self._before, 10), "every write found space")

    def _use_space(self):
        """An outsider's table, so that the fault does not depend on the load."""
        try:
            self.cluster.database.query("CREATE TABLE prove_no_space AS SELECT generate_series(1, 300000)")
        except Exception as refused:  # pylint: disable=broad-except # DiskFull, or the server gave up
            self._word = str(refused).splitlines()[0]
            return
        raise FaultFailed("a table found space on a full disk")

    def heal(self):
        self.disk.heal()
        if self.cluster.store == "postgres":
            self._revive_postgres()
        return f"{self.disk.refused - self._before} writes found no space"

    def _revive_postgres(self):
        """A full disk may stop the server, which then has to be started again."""
        server = self.cluster.engines["postgres"]

        def serves():
            if not server.running:
                server.stop("immediate")
                server.start()
            try:
                self.cluster.database.query("SELECT 1")
            except Exception:  # pylint: disable=broad-except # it recovers, or has just ended
                return False
            return True

        self.expect(until(serves, STARTS_S), f"PostgreSQL does not come back: {server.log_tail()}")


KINDS = {kind.name: kind for kind in (
    QuipuKilled, QuipuStopped, QuipuRestarted, QuipuReloaded, QuipuWithoutDescriptors, ClockForward, ClockBack,
    QuipuUpgraded, PathCut, PathReset, PathSlow, PathReorder, PathHalfOpen, PathTrickle, DiskSlow, DiskFull, *ENGINE_KINDS)}

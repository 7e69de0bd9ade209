"""One part of a proof: a cluster, the load on it, the faults, then the checks. prove.py runs one for each store."""

import contextlib
import dataclasses
import time

import check
from check import deliveries, topics
from check.cluster import Cluster as Place
from check.log import NEVER
from check.result import Finding, Invariant
from cluster import LEASE_S, PostgresCluster, SqliteCluster
from conductor import Conductor
from load import Load, LoadFailed
from recovery import BACKLOG_MAX_S, EMPTY_MAX_S, SUCCESS_MAX_S, Backlog, Measurement
from schedule import Schedule, Shape
from settle import wait_settled, wait_streams

REACTING = {"gateway": "sender", "entitlements": "notifications"}
RECOVERY_SHARE, RECOVERY_MAX_S = 0.15, 60.0  # of a part's time


@dataclasses.dataclass
class Result:
    """What a part has to report."""

    store: str
    seed: int
    upgrades: bool = False  # whether it begins with the previous release
    engines: list = dataclasses.field(default_factory=list)  # names; none: files of SQLite
    seconds: list = dataclasses.field(default_factory=list)  # the load's own, see README.md
    faults: list = dataclasses.field(default_factory=list)  # Happened
    invariants: list = dataclasses.field(default_factory=list)
    backlog: Backlog | None = None
    recoveries: list = dataclasses.field(default_factory=list)
    failures: list = dataclasses.field(default_factory=list)  # why the run is not valid
    notes: list = dataclasses.field(default_factory=list)
    directory: object = None  # of the logs, if they are kept

    @property
    def name(self):
        return f"{self.store}, upgrade" if self.upgrades else self.store

    @property
    def acknowledged(self):
        """{role: operations}"""
        return self.seconds[-1]["acked"] if self.seconds else {}

    @property
    def roles(self):
        """{role: operations} of all eight roles. No client asks the sender or notifications: theirs are what the checks found."""
        found = {}
        for role, count in self.acknowledged.items():
            found[role] = count
            if role in REACTING:
                name = REACTING[role]
                found[name] = max((invariant.covered for invariant in self.invariants if invariant.name.startswith(f"{name}:")),
                                  default=0)
        return found

    @property
    def operations(self):
        return sum(self.acknowledged.values())

    @property
    def is_violated(self):
        return any(not invariant.holds for invariant in self.invariants)

    def keeps_logs(self, keep):
        return keep == "always" or bool(self.failures) or (self.is_violated and keep == "violated")


@dataclasses.dataclass
class Settings:
    """How a part is run; the members are prove.py's options."""

    binary: object
    load: object
    seed: int
    services: list
    previous: object = None
    faults: list | None = None  # kinds; None: all
    rate: int = 0
    measures_recovery: bool = True
    keep: str = "violated"  # the logs: also always, never


class Part:
    def __init__(self, settings, store, seconds, show=lambda part: None):
        """`show` is called about five times per second while the part runs."""
        self._settings = settings
        self._seconds = seconds
        self._show = show
        self.result = Result(store, settings.seed, settings.previous is not None)
        self.doing = "starting engines"
        self.load = None
        self.conductor = None
        self.schedule = None
        self._began = time.monotonic()

    @property
    def elapsed_s(self):
        return time.monotonic() - self._began

    def run(self):
        with contextlib.ExitStack() as closing:
            cluster = self._new_cluster()
            closing.callback(cluster.close)
            self.result.notes += cluster.notes
            self.result.engines = list(cluster.engines)
            self.result.directory = cluster.directory
            folder = cluster.directory / "log"
            folder.mkdir()
            try:
                self._run_on(cluster, folder, closing)
            except LoadFailed as failed:
                self.result.failures.append(str(failed))
            cluster.keeps_directory = self.result.keeps_logs(self._settings.keep)
            if not cluster.keeps_directory:
                self.result.directory = None
        return self.result

    def _new_cluster(self):
        settings = self._settings
        if self.result.store == "postgres":
            return PostgresCluster(settings.binary, settings.services, settings.previous).start()
        return SqliteCluster(settings.binary, settings.services, settings.previous, topics.keep_local).start()

    def _run_on(self, cluster, folder, closing):
        measured_s = min(RECOVERY_MAX_S, RECOVERY_SHARE * self._seconds) if self._settings.measures_recovery else 0
        self.schedule = Schedule(self._settings.seed, self._seconds - measured_s, Shape.of(cluster), self._settings.faults)
        self._say("creating items, limits and pots")
        self.load = Load(self._settings.load, cluster, self._settings.seed, folder, self._settings.rate)
        closing.callback(self.load.close)
        self.load.wait_running()
        self.conductor = Conductor(cluster, self.schedule, folder).start()
        closing.callback(self.conductor.close)
        self._disturb(self._seconds - measured_s)
        place = place_of(cluster, self.conductor.forgotten)
        if self._settings.measures_recovery:
            self._measure_recovery(Measurement(cluster, place, self.conductor, folder))
        self._say("waiting for unknown outcomes")
        self.load.stop()
        left = wait_settled(cluster, place, self._say)
        wait_streams(place, folder)
        self.load.finish()
        self.result.seconds = self.load.seconds
        self._say("checking every answer")
        self.result.invariants = [*check.run(folder, place), *self._check_deliveries(cluster), *self._own_invariants(left)]
        self._collect()

    def _say(self, doing):
        self.doing = doing
        self._show(self)

    def _disturb(self, seconds):
        """The faults of the schedule, while the load goes on."""
        self.doing = "breaking things"
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or self.conductor.is_busy():
            if not self.load.alive:
                raise LoadFailed("prove-load ended in the middle of the run")
            time.sleep(0.2)
            self._show(self)

    def _measure_recovery(self, measurement):
        """Only with outboxes that hold nothing of earlier faults: otherwise an engine would be charged for them."""
        self._say("waiting for what the faults left in the outboxes")
        self.result.backlog = measurement.clear()
        self.result.notes.append(self.result.backlog.line())
        if self.result.backlog.empty_s is not None:
            self._say("measuring recovery")
            self.result.recoveries = measurement.run()

    def _check_deliveries(self, cluster):
        if "entitlements" not in cluster.services:
            return []
        broken = [(fault.injected_us, fault.healed_us or NEVER) for fault in self.conductor.happened]
        return [deliveries.check([node.log for node in cluster.nodes], broken, int(LEASE_S * 1e6))]

    def _own_invariants(self, left):
        """What the runner itself has seen."""
        conductor, backlog, recoveries = self.conductor, self.result.backlog, self.result.recoveries
        yield Invariant("no process ends by itself, and SIGTERM ends each in order", len(conductor.happened),
                        [Finding(violation) for violation in conductor.violations])
        yield Invariant("nothing stays on its way for ever", self.load.acknowledged,
                        [Finding(f"still waiting: {left}")] if left else [])
        if backlog:
            yield Invariant(f"what the faults left in the outboxes is gone within {BACKLOG_MAX_S:g} s", backlog.events,
                            [Finding(problem) for problem in backlog.problems()])
        if recoveries:
            yield Invariant(f"back within {SUCCESS_MAX_S:g} s, outboxes empty within {EMPTY_MAX_S:g} s", len(recoveries),
                            [Finding(problem) for recovery in recoveries for problem in recovery.problems()])

    def _collect(self):
        self.result.faults = self.conductor.happened
        self.result.failures += self.conductor.failures
        missing = self.schedule.missing()
        if missing and self._settings.faults is None:
            self.result.notes.append("not possible here: " + ", ".join(missing))


def place_of(cluster, forgotten):
    """Where the checks find everything: the engines themselves, not the paths to them."""
    addresses = {name: f"127.0.0.1:{engine.port}" for name, engine in cluster.engines.items() if name != "postgres"}
    return Place(store_url=cluster.database.url if cluster.store == "postgres" else str(cluster.data), **addresses,
                 servers=[node.address for node in cluster.nodes], quipu=str(cluster.binary), key=cluster.key.shown,
                 key_file=str(cluster.key_file), forgotten=forgotten)

"""When which fault happens: decided by the seed alone, before anything runs.

The same seed, length and shape give the same schedule. Kinds are drawn from a deck in which each has as many cards as
its weight; the deck begins with one card of each, so even a short run sees as many kinds as it has faults. Faults of one
target do not overlap and leave it a moment to recover; different targets fail at the same time as chance has it.
Between the preparation of a fault and its end, no other prepared fault happens to its target: what one puts back, or cuts
off, would take along what the other has marked.
"""

import collections
import dataclasses
import random

from faults import KINDS

FAULTS_PER_MINUTE = 17
SETTLE_S = 3.0  # at the beginning, so that there is something to lose
QUIET_S = 4.0  # at the end: everything is healed before recovery is measured
PUT_BACK_LEAST_S = 20.0  # a broker forgets at least this much; two minutes where the run is long enough
PLACES_TRIED = 200


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a run consists of, as far as faults are concerned."""

    store: str
    nodes: int
    engines: tuple
    has_paths: bool
    has_clock: bool
    has_previous: bool = False

    @classmethod
    def of(cls, cluster):
        return cls(cluster.store, len(cluster.nodes), tuple(cluster.engines), cluster.proxy.can_disturb,
                   any(node.clock for node in cluster.nodes), cluster.previous is not None)


@dataclasses.dataclass(frozen=True)
class Planned:
    """One fault: seconds since the start of the load."""

    at_s: float
    hold_s: float
    kind: str
    target: str
    dice: float
    prepare_at_s: float | None = None

    @property
    def end_s(self):
        return self.at_s + self.hold_s

    def __str__(self):
        return f"{self.at_s:7.1f} s  {self.kind} on {self.target} for {self.hold_s:.1f} s"


def prepare_at(kind, at_s):
    return max(SETTLE_S / 2, at_s - kind.prepare_s)


def is_free(taken, begin, end):
    return all(end < taken_from or begin > taken_to for taken_from, taken_to in taken)


class Schedule:
    def __init__(self, seed, seconds, shape, kinds=None, per_minute=FAULTS_PER_MINUTE):
        """`kinds` limits the faults to those; none of them: a run without faults."""
        self._random = random.Random(f"{seed}/{shape.store}")
        self._end_s = seconds - QUIET_S
        self._shape = shape
        self._busy = collections.defaultdict(list)  # by target: [(from, to), …]
        self._prepared = collections.defaultdict(list)  # the same, of prepared faults, from the preparation on
        self.kinds = {name: kind for name, kind in KINDS.items()
                      if (kinds is None or name in kinds) and kind.targets(shape)}
        self.faults = []
        self._place_upgrade()
        drawn = [kind for kind in self.kinds.values() if kind.weight]
        for kind in self._deck(drawn, round(per_minute * seconds / 60) if drawn else 0):
            self._place(kind)
        self.faults.sort(key=lambda fault: fault.at_s)

    def _deck(self, kinds, size):
        """One of each, then as the weights have it."""
        first = list(kinds)
        self._random.shuffle(first)
        rest = self._random.choices(kinds, [kind.weight for kind in kinds], k=max(0, size - len(first))) if kinds else []
        return (first + rest)[:size]

    def _place_upgrade(self):
        """The processes are replaced one after another in the first two thirds. Before its turn, nothing else happens to a
        process: the previous release is not what is proved, and cannot start again once the schema is new."""
        if "quipu-upgrade" not in self.kinds:
            return
        step_s = (self._end_s * 2 / 3 - SETTLE_S) / self._shape.nodes
        for number, target in enumerate(self.kinds["quipu-upgrade"].targets(self._shape)):
            at_s = SETTLE_S + number * step_s + self._random.uniform(0, step_s / 2)
            self._busy[target].append((0.0, at_s))
            self._take(self.kinds["quipu-upgrade"], target, at_s)

    def _place(self, kind):
        """Somewhere free; a run that is full leaves the fault out."""
        earliest = SETTLE_S + (min(kind.prepare_s, PUT_BACK_LEAST_S) if kind.prepare_s else 0)
        for _ in range(PLACES_TRIED):
            target = self._random.choice(kind.targets(self._shape))
            hold_s = self._random.uniform(*kind.hold_s)
            latest = self._end_s - hold_s - kind.rest_s
            if latest < earliest:
                return
            at_s = self._random.uniform(earliest, latest)
            end_s = at_s + hold_s + kind.rest_s
            can_prepare = not kind.prepare_s or is_free(self._prepared[target], prepare_at(kind, at_s), end_s)
            if can_prepare and is_free(self._busy[target], at_s, end_s):
                self._take(kind, target, at_s, hold_s)
                return

    def _take(self, kind, target, at_s, hold_s=None):
        hold_s = hold_s if hold_s is not None else self._random.uniform(*kind.hold_s)
        end_s = at_s + hold_s + kind.rest_s
        self._busy[target].append((at_s, end_s))
        prepare_at_s = prepare_at(kind, at_s) if kind.prepare_s else None
        if prepare_at_s is not None:
            self._prepared[target].append((prepare_at_s, end_s))
        self.faults.append(Planned(round(at_s, 3), round(hold_s, 3), kind.name, target, self._random.random(),
                                   prepare_at_s))

    def missing(self):
        """Kinds that this run cannot have at all. The upgrade has a part of its own."""
        return [name for name in KINDS if name not in self.kinds and name != "quipu-upgrade"]

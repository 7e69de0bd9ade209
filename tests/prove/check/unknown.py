"""Which of the changes that stayed unknown have happened: sets of them that lead from one value to another.

An unknown change may have happened at any time after it was sent, or never. Amounts are large and random, so a set whose
sum is just the step between two values is hardly ever a coincidence. The search tries those that were sent last first,
because that is nearly always enough, and then all of them: it lists the sums of one half of the changes, and looks for
what they lack among the sums of the other half. Where amounts are positive, a sum beyond the step is not continued, so
that even hundreds of changes are often decided. Where they are not, the search gives up, and says so.
"""

import itertools

RECENT = (12, 24)  # how many of the last changes are tried before all are
SUMS_MAX = 1 << 19  # of one half: some 100 MB
WORK_MAX = 1 << 22  # sums for one item: some seconds


class Undecided(Exception):
    """There are too many sets to try."""


class Work:
    """How much the search for one item may still cost."""

    def __init__(self):
        self._left = WORK_MAX

    def spend(self, sums):
        self._left -= sums
        if self._left < 0 or sums > SUMS_MAX:
            raise Undecided


def sets_with_sum(changes, total, work):
    """Every set of changes, as a tuple, whose deltas add up to a total. The changes that were sent last are tried first.
    Raises Undecided where not all sets could be tried."""
    latest = sorted(changes, key=lambda change: -change.invoked)
    seen = set()
    for size in (*(size for size in RECENT if size < len(latest)), len(latest)):
        for found in _all_sets(latest[:size], total, work):
            if found not in seen:
                seen.add(found)
                yield found


def _all_sets(changes, total, work):
    grows = all(change.delta > 0 for change in changes)
    if grows:
        changes = [change for change in changes if change.delta <= total]
    limit = total if grows else None
    halves = changes[0::2], changes[1::2]
    first, second = (_sums([change.delta for change in half], limit, work) for half in halves)
    by_sum = {}
    for value, mask in first:
        by_sum.setdefault(value, []).append(mask)
    for value, mask in second:
        for other in by_sum.get(total - value, ()):
            if mask or other:
                yield tuple(itertools.chain(_chosen(halves[0], other), _chosen(halves[1], mask)))


def _sums(deltas, limit, work):
    """[(sum, set as bits), …] of all sets, up to a limit."""
    sums = [(0, 0)]
    for number, delta in enumerate(deltas):
        bit = 1 << number
        sums += [(value + delta, mask | bit) for value, mask in sums if limit is None or value + delta <= limit]
        work.spend(len(sums) // 2)
    return sums


def _chosen(changes, mask):
    return (change for number, change in enumerate(changes) if mask >> number & 1)

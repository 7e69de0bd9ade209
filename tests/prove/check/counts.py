"""Counts are linear: every acknowledged value has its place in one order of changes, which agrees with real time and ends
with the value in the table.

A change by `delta` that was answered with `value` leads from value - delta to value. Amounts are large and random, so no
value occurs twice by chance, and the order follows from the values: start at the initial value and go on with the change
that starts where the last one ended. An update that was lost, repeated, or read before it was committed leaves two
changes that start from the same value, or one that starts from a value that never was.

Changes that stayed unknown may have happened in between. Then the history consists of several chains of known changes,
and the step from one chain to the next must be the sum of unknown changes, each of which happens once at most. If there
are too many of them to try all, the item is undecided: it is neither covered nor a finding, and the note says so.

A reset may start anywhere and leads to 0. It cuts the history of an item into blocks that each begin at 0.
"""

import collections
import functools

from .intervals import Block, first_inversion, first_tangle
from .result import Finding, Invariant
from .unknown import Undecided, Work, sets_with_sum


class Change:
    """What one operation did to one item. `delta` is None for a reset, `value` is None if nobody knows."""

    __slots__ = ("operation", "delta", "value")

    def __init__(self, operation, delta, value):
        self.operation, self.delta, self.value = operation, delta, value

    @property
    def before(self):
        return self.value - self.delta

    @property
    def invoked(self):
        return self.operation.invoked

    @property
    def answered(self):
        return self.operation.answered


class Item:
    def __init__(self, name):
        self.name = name
        self.initial = None
        self.bounds = (None, None)
        self.changes, self.resets, self.unknown = [], [], []
        self.reads = []  # (operation, value)
        self.refusals = []  # (operation, delta, value) of changes that would have left the bounds
        self.unknown_resets = 0

    @functools.cached_property
    def only_grows(self):
        return all(change.delta > 0 for change in self.changes + self.unknown)


class Contradiction(Exception):
    """The history of an item that no order explains."""

    def __init__(self, what, *changes):
        super().__init__(what)
        self.operations = [change.operation for change in changes]


# ---- from the log to items -------------------------------------------------------------------------------------------


def read_items(log):
    items = {}

    def item(name):
        return items.setdefault(name, Item(name))

    for operation in log.operations:
        if operation.kind == "create":
            _create(item(operation.arguments[0]), operation)
        elif operation.kind in ("batch", "atomic"):
            _take_batch(item, operation)
        elif operation.kind == "get":
            if operation.succeeded:
                item(operation.arguments[0]).reads.append((operation, operation.json()["currentValue"]))
        else:
            _take_single(item(operation.arguments[0]), operation)
    return items


def _create(item, operation):
    _, initial, low, high = operation.arguments
    item.initial = int(initial)
    item.bounds = tuple(None if bound == "-" else int(bound) for bound in (low, high))


def _delta(verb, amount):
    return {"increase": amount, "decrease": -amount}.get(verb)


def _take_single(item, operation):
    amount = int(operation.arguments[1]) if len(operation.arguments) > 1 else 0
    delta = _delta(operation.kind, amount)
    if operation.unknown:
        _take_unknown(item, operation, delta)
    elif operation.succeeded:
        _take_known(item, Change(operation, delta, operation.json()["value"]))
    elif "COUNT_OUT_OF_BOUNDS" in operation.body:
        item.refusals.append((operation, delta, operation.json()["value"]))


def _take_known(item, change):
    (item.resets if change.delta is None else item.changes).append(change)


def _take_unknown(item, operation, delta):
    if delta is None:
        item.unknown_resets += 1
    else:
        item.unknown.append(Change(operation, delta, None))


def _take_batch(item, operation):
    parts = [part.split(":") for part in operation.arguments[0].split(",")]
    results = operation.json()["results"] if operation.succeeded else [None] * len(parts)
    for (verb, name, amount), result in zip(parts, results):
        delta = _delta(verb, int(amount))
        if operation.unknown:
            _take_unknown(item(name), operation, delta)
        elif result and "value" in result:
            _take_known(item(name), Change(operation, delta, result["value"]))


# ---- one order -------------------------------------------------------------------------------------------------------


class History:
    """How an item came to its value: the known changes in the order in which they happened, as blocks between resets; the
    values with which it may have ended; and the unknown changes that have no place in this order."""

    def __init__(self, blocks, ends, unused=(), work=None):
        self.blocks, self.ends, self.unused, self.work = blocks, ends, unused, work or Work()


def explain(item):
    """The history of an item. Raises Contradiction if there is none, Undecided if it would take too long to find it."""
    if item.resets or item.unknown_resets:
        return _explain_blocks(item)
    _check_bounds(item)
    _check_starts(item)
    work = Work()
    chains, used = _connect(item, _chains(item), work)
    order = [change for chain in chains for change in chain.operations]
    inverted = first_inversion(order)
    if inverted:
        raise Contradiction("a change was answered before another began, and yet came after it", *inverted)
    unused = [change for change in item.unknown if change not in used]
    return History([order], {order[-1].value if order else item.initial}, unused, work)


def _check_bounds(item):
    low, high = item.bounds
    for change in item.changes:
        if (low is not None and change.value < low) or (high is not None and change.value > high):
            raise Contradiction(f"a change led to {change.value}, beyond the bounds {low} and {high}", change)


def _check_starts(item):
    """No more changes start from a value than led to it. It may come back by chance if it can go down, too."""
    reached = collections.Counter([item.initial, *(change.value for change in item.changes)])
    returns = 0 if item.only_grows else len(item.unknown)
    for start, twins in _by_start(item.changes).items():
        if len(twins) > 1 and len(twins) > reached[start] + returns:
            raise Contradiction(f"{len(twins)} changes started from {start}", *twins[:2])


def _by_start(changes):
    starts = collections.defaultdict(list)
    for change in changes:
        starts[change.before].append(change)
    return starts


class Chain(Block):
    """Known changes, each of which started from the value to which the one before it led. The first chain may be empty."""

    def __init__(self, start, changes):
        super().__init__(changes)
        self.start, self.end = start, changes[-1].value if changes else start


def _chains(item):
    """The chain that begins with the initial value, and the others in any order."""
    starts = _by_start(sorted(item.changes, key=lambda change: -change.answered))
    reached = {change.value for change in item.changes}
    chains = [Chain(item.initial, _walk(item.initial, starts))]
    for start in [start for start in starts if start not in reached]:
        while start in starts:
            chains.append(Chain(start, _walk(start, starts)))
    while starts:  # what is left goes in circles
        start = next(iter(starts))
        chains.append(Chain(start, _walk(start, starts)))
    return chains


def _walk(value, starts):
    """Takes the changes that follow each other from a value on; of several from one value, the first that was answered."""
    changes = []
    while value in starts:
        changes.append(starts[value].pop())
        if not starts[value]:
            del starts[value]
        value = changes[-1].value
    return changes


def _connect(item, chains, work):
    """The chains in their order, and the set of unknown changes that lead from one to the next."""
    path, used = [chains[0]], [()]
    left = set(chains[1:])
    choices = [_next_chains(item, chains[0], left, set(), work)]
    while left:
        chain, bridge = next(choices[-1], (None, None))
        if chain:
            left.remove(chain)
            path.append(chain)
            used.append(bridge)
            choices.append(_next_chains(item, chain, left, {change for each in used for change in each}, work))
            continue
        if len(path) == 1 or _is_hopeless(item, path[-1], left, work):
            _raise_gap(path[-1], left)
        choices.pop()
        left.add(path.pop())
        used.pop()
    return path, {change for each in used for change in each}


def _next_chains(item, chain, left, used, work):
    """Every way to go on: (chain, unknown changes that lead there)."""
    for following, possible in _candidates(item, left):
        unused = [change for change in possible if change not in used]
        for bridge in sets_with_sum(unused, following.start - chain.end, work):
            yield following, bridge


def _candidates(item, left):
    """The chains that may come next, each with the unknown changes that may have happened before it."""
    if not left:
        return
    by_answer = sorted(left, key=lambda chain: chain.first_answer)
    possible = [change for change in item.unknown if change.invoked <= by_answer[0].first_answer]
    if item.only_grows:
        yield min(left, key=lambda chain: chain.start), possible
        return
    for chain in by_answer:
        if all(chain.last_begin <= other.first_answer for other in by_answer[:2] if other is not chain):
            yield chain, possible


def _is_hopeless(item, chain, left, work):
    """Whether no choice before this chain makes a difference: even all unknown changes do not lead to the next one."""
    return item.only_grows and next(_next_chains(item, chain, left, set(), work), None) is None


def _raise_gap(chain, left):
    nearest = sorted((other.operations[0] for other in left), key=lambda change: change.answered)[:2]
    raise Contradiction(f"after {chain.end} no acknowledged change goes on, but {sum(len(c.operations) for c in left)} are "
                        f"left, the first from {nearest[0].before} to {nearest[0].value}", *chain.operations[-1:], *nearest)


def _explain_blocks(item):
    """Blocks begin at 0, or at the initial value. If unknown changes happened between known ones, the item is undecided."""
    heads = [change for change in item.changes if change.before in (0, item.initial)]
    resets = len(item.resets) + item.unknown_resets
    if len(heads) > resets + 1:
        raise Contradiction(f"{len(heads)} changes started from 0, but there were only {resets} resets", *heads[-2:])
    starts = _by_start([change for change in item.changes if change.before not in (0, item.initial)])
    for start, twins in starts.items():
        if len(twins) > 1:
            raise Contradiction(f"{len(twins)} changes started from {start}", *twins[:2])
    blocks, ends = [], set()
    for head in heads:
        blocks.append([head, *_walk(head.value, starts)])
        ends.add(blocks[-1][-1].value)
    if starts and item.unknown:
        raise Undecided
    if starts:
        left = min((twins[0] for twins in starts.values()), key=lambda change: change.answered)
        raise Contradiction(f"a change started from {left.before}, which never was the value", left)
    _check_blocks(item, blocks)
    if len(heads) <= resets:
        ends.add(0)
    return History(blocks, ends, item.unknown)


def _check_blocks(item, blocks):
    for order in blocks:
        inverted = first_inversion(order)
        if inverted:
            raise Contradiction("a change was answered before another began, and yet came after it", *inverted)
    tangled = first_tangle([Block(order) for order in blocks] + [Block([reset]) for reset in item.resets])
    if tangled:
        raise Contradiction("a reset, or changes after one, came between changes that followed each other",
                            *tangled[0].operations[:1], *tangled[0].operations[-1:], *tangled[1].operations[:1])


# ---- the invariants --------------------------------------------------------------------------------------------------


def check(log, tables, cluster):
    items = read_items(log)
    final = dict(tables.rows("counts", "SELECT item_id, current_value FROM count_values"))
    linear = Invariant("counts: every acknowledged value has its place in one order")
    sums = Invariant("counts: the table has what was acknowledged, no more and no less")
    seen = Invariant("counts: every value that was read was the value at that time")
    undecided = {linear.name: 0, sums.name: 0}
    for item in items.values():
        if item.initial is None:
            continue
        acknowledged = len(item.changes) + len(item.resets)
        try:
            history = explain(item)
            linear.covered += acknowledged
        except Contradiction as contradiction:
            linear.covered += acknowledged
            linear.findings.append(Finding(f"{item.name}: {contradiction}", log.lines_of(*contradiction.operations)))
            continue
        except Undecided:
            undecided[linear.name] += 1
            undecided[sums.name] += 1
            continue
        try:
            _check_final(log, item, history, final.get(item.name), sums)
            sums.covered += acknowledged + len(item.refusals)
        except Undecided:
            undecided[sums.name] += 1
        _check_reads(log, item, history.blocks, seen)
    for invariant in (linear, sums):
        if undecided[invariant.name]:
            invariant.note = f"{undecided[invariant.name]} items undecided: too many unknown changes to try them all"
    return [linear, sums, seen, _check_transfers(items, final)]


def _check_final(log, item, history, value, invariant):
    """Unknown changes may have happened after the last known one. Raises Undecided."""
    if value is None:
        invariant.findings.append(Finding(f"{item.name} was created and is not in the table"))
        return
    if value in history.ends or _leads_to(history, history.unused, value):
        return
    if len(history.unused) < len(item.unknown) and _leads_to(history, item.unknown, value):
        raise Undecided  # if unknown changes that were placed before known ones happened here instead
    last = [order[-1].operation for order in history.blocks if order and order[-1].value in history.ends][-1:]
    invariant.findings.append(Finding(f"{item.name} is {value} in the table, but the acknowledged changes lead to "
                                      f"{' or '.join(map(str, sorted(history.ends)[:3]))}", log.lines_of(*last)))


def _leads_to(history, unknown, value):
    """Whether unknown changes lead from one of the ends to a value."""
    return any(next(sets_with_sum(unknown, value - end, history.work), None) for end in history.ends)


def _check_reads(log, item, blocks, invariant):
    """A value was there from the change that led to it, to the one that followed. Refusals also tell a value. Between
    unknown changes there are values that no change led to; these are not covered."""
    if len(blocks) > 1 or item.resets or item.unknown_resets:
        return
    order = blocks[0]
    where = {item.initial: -1}
    where.update((change.value, index) for index, change in enumerate(order))
    reads = item.reads + [(operation, value) for operation, _, value in item.refusals]
    for operation, value in reads:
        index = where.get(value)
        if index is None and item.unknown:
            continue
        invariant.covered += 1
        since = order[index].invoked if index is not None and index >= 0 else 0
        until = order[index + 1].answered if index is not None and index + 1 < len(order) else operation.answered
        if index is None:
            what = f"{item.name} was read as {value}, which it never was"
            invariant.findings.append(Finding(what, log.lines_of(operation)))
        elif operation.answered < since or operation.invoked > until:
            near = [order[i].operation for i in (index, index + 1) if 0 <= i < len(order)]
            invariant.findings.append(Finding(f"{item.name} was read as {value} before or after it was that",
                                              log.lines_of(operation, *near)))
    for operation, delta, value in item.refusals:
        low, high = item.bounds
        if (low is None or value + delta >= low) and (high is None or value + delta <= high):
            invariant.findings.append(Finding(f"{item.name} was {value} and had room for {delta}, and the change was refused",
                                              log.lines_of(operation)))


def _check_transfers(items, final):
    """Transfers move amounts between items, so their sum stays."""
    involved = {name: item for name, item in items.items() if any(c.operation.kind == "atomic" for c in item.changes)}
    invariant = Invariant("counts: transfers leave the sum as it was",
                          len({c.operation.id for item in involved.values() for c in item.changes}))
    if any(item.unknown for item in involved.values()):
        invariant.covered, invariant.note = 0, "not judged: transfers stayed unknown"
        return invariant
    before = sum(item.initial or 0 for item in involved.values())
    after = sum(final.get(name, 0) for name in involved)
    if before != after:
        invariant.findings.append(Finding(f"the items of transfers held {before} together and now hold {after}"))
    return invariant

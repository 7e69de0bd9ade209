"""Counts are linear: every acknowledged value has its place in one order of changes, which agrees with real time and ends
with the value in the table.

A change by `delta` that was answered with `value` leads from value - delta to value. Amounts are large and random, so no
value occurs twice by chance, and the order follows from the values: start at the initial value and go on with the change
that starts where the last one ended. An update that was lost, repeated, or read before it was committed leaves two
changes that start from the same value, or one that starts from a value that never was.

A reset may start anywhere and leads to 0. It cuts the history of an item into blocks that each begin at 0.
"""

import collections
import itertools

from .intervals import Block, first_inversion, first_tangle
from .result import Finding, Invariant

SUBSET_MAX = 4  # unknown changes that may have happened one after the other
SUBSET_OF_MAX = 24


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


def explain(item):
    """The changes in the order in which they happened, as blocks between resets. Raises Contradiction."""
    if item.resets or item.unknown_resets:
        return _explain_blocks(item)
    _check_bounds(item)
    order, last = _follow(item, item.initial, _by_start(item.changes), list(item.unknown))
    inverted = first_inversion(order)
    if inverted:
        raise Contradiction("a change was answered before another began, and yet came after it", *inverted)
    return [order], {last}


def _check_bounds(item):
    low, high = item.bounds
    for change in item.changes:
        if (low is not None and change.value < low) or (high is not None and change.value > high):
            raise Contradiction(f"a change led to {change.value}, beyond the bounds {low} and {high}", change)


def _by_start(changes):
    starts = collections.defaultdict(list)
    for change in changes:
        starts[change.before].append(change)
    for twins in starts.values():
        if len(twins) > 1:
            raise Contradiction(f"two changes both started from {twins[0].before}", *twins[:2])
    return {start: twins[0] for start, twins in starts.items()}


def _follow(item, value, starts, unknown):
    """From a value as far as the changes lead, across unknown ones where that is the only way."""
    order = []
    while starts:
        change = starts.pop(value, None)
        if change is None:
            bridge = _bridge(value, unknown, starts)
            if bridge is None:
                _raise_gap(item, value, order, starts)
            for step in bridge:
                unknown.remove(step)
                value += step.delta
            continue
        order.append(change)
        value = change.value
    item.unknown_left = unknown
    return order, value


def _bridge(value, unknown, targets):
    """Unknown changes that lead from a value to the start of a known one."""
    for size in range(1, SUBSET_MAX + 1):
        for subset in itertools.combinations(unknown[:SUBSET_OF_MAX], size):
            if value + sum(change.delta for change in subset) in targets:
                return subset
    return None


def _raise_gap(item, value, order, starts):
    nearest = sorted(starts.values(), key=lambda change: change.answered)[:2]
    raise Contradiction(f"after {value} no acknowledged change goes on, but {len(starts)} are left, the first from "
                        f"{nearest[0].before} to {nearest[0].value}", *order[-1:], *nearest)


def _explain_blocks(item):
    """Blocks begin at 0, or at the initial value. Items with resets have no unknown changes that are bridged."""
    heads = [change for change in item.changes if change.before in (0, item.initial)]
    resets = len(item.resets) + item.unknown_resets
    if len(heads) > resets + 1:
        raise Contradiction(f"{len(heads)} changes started from 0, but there were only {resets} resets", *heads[-2:])
    starts = _by_start([change for change in item.changes if change.before not in (0, item.initial)])
    blocks, ends = [], set()
    for head in heads:
        order = [head]
        while order[-1].value in starts:
            order.append(starts.pop(order[-1].value))
        blocks.append(order)
        ends.add(order[-1].value)
    if starts and not item.unknown:
        left = min(starts.values(), key=lambda change: change.answered)
        raise Contradiction(f"a change started from {left.before}, which never was the value", left)
    _check_blocks(item, blocks)
    if len(heads) <= resets:
        ends.add(0)
    return blocks, ends


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
    for item in items.values():
        if item.initial is None:
            continue
        linear.covered += len(item.changes) + len(item.resets)
        sums.covered += len(item.changes) + len(item.resets) + len(item.refusals)
        try:
            blocks, ends = explain(item)
        except Contradiction as contradiction:
            linear.findings.append(Finding(f"{item.name}: {contradiction}", log.lines_of(*contradiction.operations)))
            continue
        _check_final(log, item, ends, blocks, final.get(item.name), sums)
        _check_reads(log, item, blocks, seen)
    return [linear, sums, seen, _check_transfers(items, final)]


def _check_final(log, item, ends, blocks, value, invariant):
    if value is None:
        invariant.findings.append(Finding(f"{item.name} was created and is not in the table"))
        return
    possible = set(ends)
    unknown = getattr(item, "unknown_left", item.unknown)[:SUBSET_OF_MAX]
    for size in range(1, SUBSET_MAX + 1):
        for subset in itertools.combinations(unknown, size):
            possible |= {end + sum(change.delta for change in subset) for end in ends}
    if value not in possible:
        last = [order[-1].operation for order in blocks if order and order[-1].value in ends][-1:]
        invariant.findings.append(Finding(f"{item.name} is {value} in the table, but the acknowledged changes lead to "
                                          f"{' or '.join(map(str, sorted(ends)[:3]))}", log.lines_of(*last)))


def _check_reads(log, item, blocks, invariant):
    """A value was there from the change that led to it, to the one that followed. Refusals also tell a value."""
    if len(blocks) > 1 or item.resets or item.unknown:
        return
    order = blocks[0]
    where = {item.initial: -1}
    where.update((change.value, index) for index, change in enumerate(order))
    reads = item.reads + [(operation, value) for operation, _, value in item.refusals]
    for operation, value in reads:
        invariant.covered += 1
        index = where.get(value)
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
        invariant.note = "not judged: transfers stayed unknown"
        return invariant
    before = sum(item.initial or 0 for item in involved.values())
    after = sum(final.get(name, 0) for name in involved)
    if before != after:
        invariant.findings.append(Finding(f"the items of transfers held {before} together and now hold {after}"))
    return invariant

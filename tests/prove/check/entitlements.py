"""Every acknowledged grant and revoke is one line of the audit; the lines, replayed, give the entitlements and their sources;
every change of a status is one event in the outbox, published, and one notification, sent.

Purchases are named after the operation that made them, so each line leads to the operation behind it.
"""

import collections
import dataclasses

from .intervals import first_inversion
from .result import Finding, Invariant
from .settling import eventually

TYPES = {"GRANTED": "EntitlementGranted", "REVOKED": "EntitlementRevoked"}


@dataclasses.dataclass
class Line:
    """A line of the audit."""

    user: str
    unit: str
    version: int
    step: int
    action: str
    purchase: str | None
    event: str | None
    status_after: str = ""


def read_audit(log, tables):
    """The lines of each entitlement in their order."""
    rows = tables.rows("entitlements", "SELECT user_id, stock_keeping_unit, version, step, action, purchase_id, "
                                       "CAST(event_id AS text) FROM entitlement_audit")
    audit = collections.defaultdict(list)
    for row in rows:
        if row[0].startswith(log.prefix):
            line = Line(*row)
            audit[line.user, line.unit].append(line)
    for lines in audit.values():
        lines.sort(key=lambda line: (line.version, line.step))
    return audit


class Replay:
    """An entitlement as its audit tells it."""

    def __init__(self):
        self.status, self.version, self.step = None, 0, 0
        self.active, self.ended = set(), set()

    def apply(self, line):
        """Returns what is wrong with a line; None: nothing."""
        wrong = self._grant(line) if line.action == "GRANTED" else self._revoke(line)
        if wrong:
            return wrong
        before, self.status = self.status, "ACTIVE" if self.active else "REVOKED"
        changed = before != self.status
        self.version, self.step = (self.version + 1, 0) if changed else (self.version, self.step + 1)
        line.status_after = self.status
        if (line.version, line.step) != (self.version, self.step):
            return f"is numbered {line.version}.{line.step} instead of {self.version}.{self.step}"
        if changed != (line.event is not None):
            return "has an event although the status stayed" if line.event else "changes the status and has no event"
        return None

    def _grant(self, line):
        if line.purchase in self.active or line.purchase in self.ended:
            return f"grants {line.purchase} a second time"
        self.active.add(line.purchase)
        return None

    def _revoke(self, line):
        if line.purchase and line.purchase not in self.active:
            return f"revokes {line.purchase}, which is not active"
        if not self.active:
            return "revokes what is not active"
        ended = {line.purchase} if line.purchase else set(self.active)
        self.active -= ended
        self.ended |= ended
        return None


def check(log, tables, cluster):
    audit = read_audit(log, tables)
    return [_check_replay(log, tables, audit), _check_answers(log, audit), _check_order(log, audit),
            eventually(cluster, lambda: _check_outbox(log, tables, audit)),
            eventually(cluster, lambda: _check_notifications(log, tables, audit))]


def _check_replay(log, tables, audit):
    invariant = Invariant("entitlements: the table and the sources are what the audit tells", sum(map(len, audit.values())))
    rows = {(user, unit): (status, version) for user, unit, status, version in
            tables.rows("entitlements", "SELECT user_id, stock_keeping_unit, status, version FROM entitlements")
            if user.startswith(log.prefix)}
    sources = collections.defaultdict(set)
    for user, unit, source in tables.rows("entitlements", "SELECT user_id, stock_keeping_unit, source_id "
                                                          "FROM entitlement_sources WHERE status = 'ACTIVE'"):
        sources[user, unit].add(source)
    for name in rows.keys() - audit.keys():
        invariant.findings.append(Finding(f"{name} is in the table and has no audit"))
    for name, lines in audit.items():
        replay = Replay()
        wrong = next(filter(None, (replay.apply(line) and f"line {line}" for line in lines)), None)
        if wrong:
            invariant.findings.append(Finding(f"{name}: {wrong} does not follow from the lines before it"))
        elif rows.get(name) != (replay.status, replay.version):
            invariant.findings.append(Finding(f"{name} is {rows.get(name)}, and its audit ends with "
                                              f"{(replay.status, replay.version)}"))
        elif sources[name] != replay.active:
            invariant.findings.append(Finding(f"{name} has the sources {sources[name]}, and its audit {replay.active}"))
    return invariant


def _lines_by_source(audit):
    """Lines by entitlement, action and purchase."""
    found = collections.defaultdict(list)
    for (user, unit), lines in audit.items():
        for line in lines:
            found[user, unit, line.action, line.purchase].append(line)
    return found


def _check_answers(log, audit):
    invariant = Invariant("entitlements: every acknowledged change is one line of the audit, and no other")
    lines = _lines_by_source(audit)
    asked = collections.defaultdict(list)
    for operation in log.of("grant", "revoke"):
        user, unit, purchase = operation.arguments
        action = {"grant": "GRANTED", "revoke": "REVOKED"}[operation.kind]
        asked[user, unit, action, None if purchase == "-" else purchase].append(operation)
    for name in lines.keys() - asked.keys():
        invariant.findings.append(Finding(f"the audit has {name}, and nobody asked for it"))
    for name, operations in asked.items():
        invariant.covered += len(operations)
        succeeded = [operation for operation in operations if operation.succeeded]
        unknown = sum(operation.unknown for operation in operations)
        found = lines.get(name, [])
        if not len(succeeded) <= len(found) <= len(succeeded) + unknown:
            invariant.findings.append(Finding(f"{name}: {len(succeeded)} acknowledged, {len(found)} in the audit",
                                              log.lines_of(*operations)))
            continue
        told = {(line.version, line.status_after) for line in found}
        for operation in succeeded:
            answer = operation.json()
            if (answer["version"], answer["status"]) not in told:
                invariant.findings.append(Finding(f"{operation} was told version {answer['version']}, and the audit has "
                                                  f"{sorted(told)}", log.lines_of(operation)))
    return invariant


def _check_order(log, audit):
    invariant = Invariant("entitlements: the audit is in an order that real time allows")
    by_source = {}
    for operation in log.of("grant", "revoke"):
        if operation.succeeded and operation.arguments[2] != "-":
            by_source[operation.kind, *operation.arguments] = operation
    for (user, unit), lines in audit.items():
        kinds = {"GRANTED": "grant", "REVOKED": "revoke"}
        order = [by_source.get((kinds[line.action], user, unit, line.purchase)) for line in lines]
        order = [operation for operation in order if operation]
        invariant.covered += len(order)
        inverted = first_inversion(order)
        if inverted:
            invariant.findings.append(Finding(f"{user} {unit}: {inverted[1]} was answered before {inverted[0]} began, and "
                                              "follows it in the audit", log.lines_of(*inverted)))
    return invariant


# ---- events ----------------------------------------------------------------------------------------------------------


def _check_outbox(log, tables, audit):
    invariant = Invariant("entitlements: every change of a status is one published event")
    expected = {line.event: line for lines in audit.values() for line in lines if line.event}
    rows = tables.rows("entitlements", "SELECT CAST(event_id AS text), event_type, status, aggregate_key, payload "
                                       "FROM outbox_events")
    found = {row[0]: row for row in rows if row[3].startswith(log.prefix)}
    invariant.covered = len(expected)
    for event in list(expected.keys() - found.keys())[:20]:
        invariant.findings.append(Finding(f"{expected[event]} has no event in the outbox"))
    for event in list(found.keys() - expected.keys())[:20]:
        invariant.findings.append(Finding(f"the outbox has the event {event} of {found[event][3]}, and the audit does not"))
    for event in expected.keys() & found.keys():
        line, (_, kind, status, key, payload) = expected[event], found[event]
        fields = decode(bytes(payload))
        told = (fields.get(1), fields.get(4), fields.get(5), fields.get(8))
        if kind != TYPES[line.action] or key != f"{line.user}:{line.unit}" or told != (event, line.user, line.unit, line.version):
            invariant.findings.append(Finding(f"the event {kind} {told} is not what {line} tells"))
        elif status != "PUBLISHED":
            invariant.findings.append(Finding(f"the event {event} of {key} is {status}, not PUBLISHED"))
    return invariant


def _check_notifications(log, tables, audit):
    invariant = Invariant("notifications: one per event, and sent")
    expected = {line.event for lines in audit.values() for line in lines if line.event}
    rows = tables.rows("notifications", "SELECT CAST(event_id AS text), status, user_id FROM notifications")
    found = collections.defaultdict(list)
    for event, status, user in rows:
        if user.startswith(log.prefix):
            found[event].append(status)
    invariant.covered = len(expected)
    missing = expected - found.keys()
    if missing:
        invariant.findings.append(Finding(f"{len(missing)} events have no notification, such as {min(missing)}"))
    for event, statuses in found.items():
        if statuses != ["SENT"] or event not in expected:
            invariant.findings.append(Finding(f"the event {event} has the notifications {statuses}"))
    return invariant


def decode(payload):
    """The fields of a protobuf message that are strings or integers, by number."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(payload):
        tag = varint()
        if tag & 7 == 0:
            fields[tag >> 3] = varint()
        elif tag & 7 == 2:
            length = varint()
            fields[tag >> 3] = payload[at:at + length].decode(errors="replace")
            at += length
        else:
            raise ValueError(f"a field of wire type {tag & 7}")
    return fields

"""No user gets more messages than the limit, whatever `window-start` one looks at; every acknowledged send is one message on
the topic, a refused one is none, and the sender sends each once.

A limit that is set begins a window, and its answer says when. So the limit of a window is that of the last setting before
its start, by the store's own clock.
"""

import bisect
import collections

from .result import Finding, Invariant
from .settling import eventually
from .topics import microseconds, read_sends


class Limits:
    """The settings of one user, by the time from which they held."""

    def __init__(self):
        self._since, self._limits, self._windows = [], [], []
        self.unknown = False

    def add(self, operation):
        answer = operation.json()
        since = microseconds(answer["lastRefreshTime"])
        at = bisect.bisect_right(self._since, since)
        self._since.insert(at, since)
        self._limits.insert(at, answer["rateLimit"])
        self._windows.insert(at, answer["timeWindow"])

    def at(self, window_us):
        """The limit of the window that begins at this time; None: there was none yet."""
        index = bisect.bisect_right(self._since, window_us) - 1
        return self._limits[index] if index >= 0 else None

    def of_end(self, end_us, unit_us):
        """The limit of the window that ends at this time; None: no window of a setting ends then. Where windows of two
        settings could end then, it is that of the one that began with its setting, or else the higher one."""
        possible = []
        for index, since in enumerate(self._since):
            start = end_us - self._windows[index] * unit_us
            if start == since:
                return self._limits[index]
            if since < start and (index + 1 == len(self._since) or start < self._since[index + 1]):
                possible.append(self._limits[index])
        return max(possible, default=None)


def read_limits(log):
    limits = collections.defaultdict(Limits)
    for operation in log.of("config"):
        if operation.succeeded:
            limits[operation.arguments[0]].add(operation)
        elif operation.unknown:
            limits[operation.arguments[0]].unknown = True
    return limits


def check(log, tables, cluster):
    limits = read_limits(log)
    topic = [send for send in read_sends(cluster) if send.user.startswith(log.prefix)]
    return [_check_windows(log, topic, limits), *_check_sends(log, topic, cluster), _check_takes(log, limits, cluster),
            _check_store(log, topic, tables, cluster), eventually(cluster, lambda: _check_sender(log, topic, tables))]


def operation_of(log, send):
    """The operation whose number is in the text of a message; None: there is none."""
    number = send.text[1:]
    return log.by_id.get(int(number)) if number.isdigit() else None


def _check_windows(log, topic, limits):
    invariant = Invariant("gateway: under one window-start a user never has more messages than the limit", len(topic))
    windows = collections.defaultdict(dict)
    for send in topic:
        windows[send.user, send.window_us][send.id] = send
    for (user, window), sends in windows.items():
        limit = limits[user].at(window)
        if limits[user].unknown:
            continue
        if limit is None or len(sends) > limit:
            operations = [operation for operation in (operation_of(log, send) for send in sends.values()) if operation]
            invariant.findings.append(Finding(f"{user} has {len(sends)} messages under window-start {window}, and the limit "
                                              f"is {limit}", log.lines_of(*operations)))
    invariant.note = f"{len(windows):,} windows"
    return invariant


def _check_sends(log, topic, cluster):
    there = Invariant("gateway: every acknowledged send lies on the topic")
    once = Invariant("gateway: one message per send, whatever was retried", len(topic))
    refused = Invariant("gateway: nothing that was refused lies on the topic")
    ids = collections.defaultdict(set)
    records = collections.Counter(send.text for send in topic)
    for send in topic:
        ids[send.text].add((send.id, send.user))
    forgotten = 0
    for operation in log.of("send"):
        user, text = operation.arguments
        found = ids.get(text, set())
        if len(found) > 1:
            once.findings.append(Finding(f"{operation} became {len(found)} messages", log.lines_of(operation)))
        if operation.succeeded and not operation.doubtful and records[text] > 1:
            refused.findings.append(Finding(f"{operation} lies on the topic {records[text]} times: attempts that were refused "
                                            "have published it, too", log.lines_of(operation)))
        if operation.succeeded:
            there.covered += 1
            if (operation.json()["messageId"], user) not in found:
                if cluster.forgot("kafka", operation.invoked, operation.answered):
                    forgotten += 1
                else:
                    there.findings.append(Finding(f"{operation} was acknowledged and is not on the topic",
                                                  log.lines_of(operation)))
        elif operation.without_effect:
            refused.covered += 1
            if found:
                refused.findings.append(Finding(f"{operation} was refused, but its message is on the topic",
                                                log.lines_of(operation)))
    there.note = f"{forgotten} more were confirmed by a Kafka that was then made to forget" if forgotten else ""
    return there, once, refused


def _check_takes(log, limits, cluster):
    """A take of 3 that leaves 5 spent the units 6, 7 and 8 of its window: nobody else may have spent them."""
    invariant = Invariant("gateway: no unit of a quota is taken twice")
    windows = collections.defaultdict(list)
    for operation in log.of("take"):
        if operation.succeeded:
            answer = operation.json()
            windows[operation.arguments[0], microseconds(answer["resetAt"])].append((answer["remaining"], operation))
    for (user, end), taken in windows.items():
        invariant.covered += len(taken)
        limit = limits[user].of_end(end, cluster.window_unit_us)
        taken.sort(key=lambda pair: pair[0])
        if limit is None and not limits[user].unknown:
            invariant.findings.append(Finding(f"{user}: no window ends at {end}", log.lines_of(taken[0][1])))
            continue
        spent = sum(int(operation.arguments[1]) for _, operation in taken)
        if limit is not None and spent > limit:
            invariant.findings.append(Finding(f"{user} took {spent} of {limit} in the window that ends at {end}",
                                              log.lines_of(*(operation for _, operation in taken))))
            continue
        for (low, lower), (high, upper) in zip(taken, taken[1:]):
            if low + int(lower.arguments[1]) > high:
                invariant.findings.append(Finding(f"{user} took the same units twice, in the window that ends at {end}",
                                                  log.lines_of(lower, upper)))
    invariant.note = f"{len(windows):,} windows"
    return invariant


def _forgotten_until(log, cluster):
    """{user: time}: windows of the user that began by then may have had messages that Kafka was made to forget. Later ones
    have not, because a window begins before its messages are confirmed."""
    intervals = [interval for interval in cluster.forgotten if interval.engine == "kafka"]
    until = {}
    for operation in log.of("send") if intervals else ():
        if operation.without_effect:
            continue
        user = operation.arguments[0]
        for interval in intervals:
            if operation.invoked <= interval.until_us and interval.since_us <= operation.answered:
                until[user] = max(interval.until_us, until.get(user, 0))
    return until


def _check_store(log, topic, tables, cluster):
    """In the window that a row is in: acknowledged <= counted <= on the topic, and all that is reserved <= limit."""
    invariant = Invariant("gateway: the count in the table is that of the messages")
    published = collections.Counter((user, window) for user, window, _ in {(s.user, s.window_us, s.id) for s in topic})
    windows = {send.id: send.window_us for send in topic}
    acked = collections.Counter((operation.arguments[0], windows.get(operation.json()["messageId"]))
                                for operation in log.of("send") if operation.succeeded)
    takers = {operation.arguments[0] for operation in log.of("take")}
    rows = tables.rows("gateway", "SELECT user_id, rate_limit, current_count, reserved_count, "
                                  f"{tables.time_us('last_refresh_time')} FROM rate_limit_store")
    forgotten_until = _forgotten_until(log, cluster)
    exempt = 0
    for user, limit, count, reserved, window in rows:
        if not user.startswith(log.prefix) or user in takers:
            continue
        if window <= forgotten_until.get(user, -1):
            exempt += 1
            continue
        invariant.covered += 1
        least, most = acked[user, window], published[user, window]
        if not least <= count <= most <= max(reserved, count) <= limit:
            invariant.findings.append(Finding(f"{user}: {least} acknowledged, {count} counted, {most} on the topic, "
                                              f"{reserved} reserved, limit {limit}, window {window}"))
    invariant.note = f"{exempt} more are in windows of which Kafka was made to forget messages" if exempt else ""
    return invariant


def _check_sender(log, topic, tables):
    """Also where Kafka gave the offset of a message that it forgot to a new one."""
    invariant = Invariant("sender: every message on the topic was sent")
    sends = {send.id: send for send in topic}
    sent = {row[0] for row in tables.rows("gateway", "SELECT message_id FROM sent_messages")}
    if tables.has("gateway", "outbound_messages"):
        sent |= {row[0] for row in tables.rows("gateway", "SELECT message_id FROM outbound_messages "
                                                          "WHERE status = 'SENT'")}
    invariant.covered = len(sends)
    missing = [operation_of(log, sends[number]) for number in sorted(sends.keys() - sent)]
    if missing:
        invariant.findings.append(Finding(f"{len(missing)} messages were never sent, such as that of {missing[0]}",
                                          log.lines_of(missing[0])))
    return invariant

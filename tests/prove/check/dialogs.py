"""Every acknowledged message is one row with one event; a message is read once, and only if somebody read it; the counters are
what a recount of the messages gives, and every stream ends on that number."""

import collections
import http.client
import json

from .log import Log
from .result import Finding, Invariant
from .settling import eventually
from .tables import Tables

UNREAD = "SELECT receiver_id, count(*) FROM messages WHERE NOT is_read GROUP BY 1"


class Message:
    __slots__ = ("receiver", "id", "sender", "text", "is_read")

    def __init__(self, receiver, number, sender, text, is_read):
        self.receiver, self.id, self.sender, self.text, self.is_read = receiver, number, sender, text, bool(is_read)


def read_messages(log, tables):
    rows = tables.rows("dialogs", "SELECT receiver_id, CAST(id AS text), sender_id, text, is_read FROM messages")
    return [Message(*row) for row in rows if row[0].startswith(log.prefix)]


def uncounted(cluster):
    """How many users have a counter that is not the number of their unread messages."""
    with Tables(cluster) as tables:
        unread = dict(tables.rows("dialogs", UNREAD))
        counted = dict(tables.rows("counters", "SELECT user_id, count FROM counters WHERE type = 'UnreadMessages' "
                                               "AND count > 0"))
    return sum(unread.get(user, 0) != counted.get(user, 0) for user in unread.keys() | counted.keys())


def streams_behind(log_dir, cluster):
    """How many streams have not delivered the number of unread messages yet."""
    counters = Log(log_dir, "counters")
    if not counters.exists:
        return 0
    with Tables(cluster) as tables:
        unread = dict(tables.rows("dialogs", UNREAD))
    last = {user: _version_and_count(rest)[1] for _, mark, user, rest in counters.streams if mark == "~"}
    return sum(count != unread.get(user, 0) for user, count in last.items())


def _version_and_count(event):
    version, _, body = event.partition(" ")
    return int(version), json.loads(body)["count"]


def check(log, tables, cluster):
    messages = read_messages(log, tables)
    counters = Log(log.folder, "counters")
    unread = collections.Counter(message.receiver for message in messages if not message.is_read)
    invariants = [_check_sends(log, messages), _check_reads(log, messages), _check_updated(log, messages),
                  eventually(cluster, lambda: _check_events(log, tables, messages))]
    if counters.exists:
        invariants += [eventually(cluster, lambda: _check_counters(log, tables, messages)),
                       eventually(cluster, lambda: _check_answers(cluster, counters, unread)),
                       _check_streams(counters, unread)]
    return invariants


def _check_sends(log, messages):
    invariant = Invariant("dialogs: every acknowledged message is one row, and no refused one is")
    rows = collections.defaultdict(list)
    for message in messages:
        rows[message.text].append(message)
    for operation in log.of("send"):
        sender, receiver, text = operation.arguments
        found = rows.pop(text, [])
        invariant.covered += 1
        if len(found) > 1:
            wrong = f"became {len(found)} messages"
        elif operation.succeeded and [operation.json()["messageId"]] != [message.id for message in found]:
            wrong = f"was acknowledged, and the table has {[message.id for message in found]}"
        elif operation.without_effect and found:
            wrong = "was refused, and its message is in the table"
        elif found and (found[0].sender, found[0].receiver) != (sender, receiver):
            wrong = f"is in the table from {found[0].sender} to {found[0].receiver}"
        else:
            continue
        invariant.findings.append(Finding(f"{operation} {wrong}", log.lines_of(operation)))
    for text in list(rows)[:5]:
        invariant.findings.append(Finding(f"the table has the message {text}, and nobody sent it"))
    return invariant


class Asked:
    """Which messages somebody asked to mark as read: certainly (the answer says so), or possibly."""

    def __init__(self, log):
        self.by_id = collections.defaultdict(list)
        self.up_to = collections.defaultdict(list)
        for operation in log.of("read", "readbatch"):
            for number in operation.arguments[1].split(","):
                self.by_id[number].append(operation)
        for operation in log.of("readupto"):
            receiver, sender, number = operation.arguments
            self.up_to[receiver, sender].append((number, operation))

    def of(self, message):
        """The operations that cover a message."""
        ranges = self.up_to[message.receiver, message.sender]
        return self.by_id[message.id] + [operation for number, operation in ranges if message.id <= number]


def _check_reads(log, messages):
    invariant = Invariant("dialogs: what was read is read, and nothing else is")
    asked = Asked(log)
    sent = {operation.arguments[2]: operation for operation in log.of("send")}
    for message in messages:
        operations = asked.of(message)
        invariant.covered += len(operations)
        if message.is_read and not any(not operation.without_effect for operation in operations):
            invariant.findings.append(Finding(f"nobody read {message.id} to {message.receiver}, and it is read",
                                              log.lines_of(*operations[:3])))
        if not message.is_read:
            known = sent.get(message.text)
            done = [operation for operation in operations if operation.succeeded and _covers(operation, known)]
            if done:
                invariant.findings.append(Finding(f"{done[0]} was acknowledged, and {message.id} is unread",
                                                  log.lines_of(done[0])))
    return invariant


def _covers(operation, send):
    """Whether an acknowledged read certainly came after its message: a range covers what was there already."""
    if operation.kind != "readupto":
        return True
    return send is not None and send.answered < operation.invoked and not operation.json().get("more")


def _check_updated(log, messages):
    """Each message counts as updated in exactly one answer."""
    invariant = Invariant("dialogs: every message is marked as read once")
    updated = collections.Counter()
    unknown = set()
    operations = collections.defaultdict(list)
    for operation in log.of("read", "readbatch", "readupto"):
        invariant.covered += 1
        receiver = operation.arguments[0]
        if operation.unknown:
            unknown.add(receiver)
        elif operation.succeeded:
            updated[receiver] += operation.json()["updated"]
            operations[receiver].append(operation)
    read = collections.Counter(message.receiver for message in messages if message.is_read)
    for receiver in (read.keys() | updated.keys()) - unknown:
        if read[receiver] != updated[receiver]:
            invariant.findings.append(Finding(f"answers to {receiver} marked {updated[receiver]} messages as read, and "
                                              f"{read[receiver]} are", log.lines_of(*operations[receiver][-3:])))
    return invariant


# ---- events and counters ---------------------------------------------------------------------------------------------


def _check_events(log, tables, messages):
    invariant = Invariant("dialogs: every message and every read is one published event")
    counts = collections.Counter()
    statuses = collections.Counter()
    for kind, key, payload, status in tables.rows("dialogs", "SELECT event_type, aggregate_key, payload, status "
                                                             "FROM dialog_outbox_events"):
        if key.startswith(log.prefix):
            counts[kind, json.loads(bytes(payload))["message"]["messageId"]] += 1
            statuses[status] += 1
    expected = collections.Counter({("NewMessageEvent", message.id): 1 for message in messages})
    expected.update({("MessageReadEvent", message.id): 1 for message in messages if message.is_read})
    invariant.covered = len(expected)
    for kind, number in list((counts - expected) + (expected - counts))[:20]:
        invariant.findings.append(Finding(f"the outbox has {counts[kind, number]} times {kind} of {number}, and "
                                          f"{expected[kind, number]} is due"))
    if set(statuses) - {"PUBLISHED"}:
        invariant.findings.append(Finding(f"the outbox has {dict(statuses)}"))
    return invariant


def _check_counters(log, tables, messages):
    invariant = Invariant("counters: unread is what a recount of the messages gives")
    unread = {message.id: message.receiver for message in messages if not message.is_read}
    truth = collections.Counter(unread.values())
    rows = {user: count for user, count in tables.rows("counters", "SELECT user_id, count FROM counters "
                                                                   "WHERE type = 'UnreadMessages'")
            if user.startswith(log.prefix)}
    invariant.covered = len(messages)
    for user in truth.keys() | rows.keys():
        if truth[user] != rows.get(user, 0):
            invariant.findings.append(Finding(f"{user} has {truth[user]} unread messages, and the counter says "
                                              f"{rows.get(user, 0)}"))
    counted = {number: user for user, number in tables.rows(
        "counters", "SELECT user_id, CAST(message_id AS text) FROM counter_messages WHERE state = 'unread'")
        if user.startswith(log.prefix)}
    for number in list(unread.keys() ^ counted.keys())[:5]:
        invariant.findings.append(Finding(f"the message {number} is unread in only one of the tables"))
    return invariant


def _check_answers(cluster, counters, unread):
    """What every server says at the end, cache or not."""
    invariant = Invariant("counters: every server tells the truth")
    users = sorted({operation.arguments[0] for operation in counters.of("get")} | unread.keys())
    headers = {"Authorization": f"Bearer {cluster.key}"} if cluster.key else {}
    for server in cluster.servers:
        connection = http.client.HTTPConnection(server, timeout=30)
        for user in users:
            connection.request("GET", f"/counters/user/{user}/UnreadMessages", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            invariant.covered += 1
            if answer.status != 200 or json.loads(body)["count"] != unread.get(user, 0):
                invariant.findings.append(Finding(f"{server} says {body.decode()[:120]}, and {unread.get(user, 0)} are unread"))
        connection.close()
    return invariant


def _check_streams(counters, unread):
    invariant = Invariant("counters: streams never go back and end on the last value")
    last, told, since = {}, {}, {}
    for at, mark, user, rest in counters.streams:
        line = f"{at} {mark} {user} {rest}"
        if mark == "^":
            since.pop(user, None)
            continue
        if mark == "$":
            continue
        version, count = _version_and_count(rest)
        invariant.covered += 1
        if user in since and version <= since[user]:
            invariant.findings.append(Finding(f"the stream of {user} went back from version {since[user]}", [line]))
        if told.setdefault((user, version), (count, line))[0] != count:
            invariant.findings.append(Finding(f"version {version} of {user} has two values",
                                              [told[user, version][1], line]))
        since[user], last[user] = version, (count, line)
    for user, (count, line) in last.items():
        if count != unread.get(user, 0):
            invariant.findings.append(Finding(f"the stream of {user} ended on {count}, and {unread.get(user, 0)} are unread",
                                              [line]))
    return invariant

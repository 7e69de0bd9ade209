"""Dialogs and counters as a client sees them, and their engines as independent clients see them.

Every answer is checked against the OpenAPI document. `SqliteUnread` is a process with the defaults: SQLite, the local
queue, the memory cache. `PostgresUnread` is what several processes share: PostgreSQL, RabbitMQ and Redis."""

import contextlib
import datetime
import itertools
import json
import pathlib
import re
import uuid
from urllib.parse import quote, urlencode

from .counts import new_id
from .http import Client, EventStream
from .stores import open_to_read
from .waiting import wait_until

UNREAD = "SELECT receiver_id, count(*) FROM messages WHERE NOT is_read GROUP BY receiver_id"
COUNTED = "SELECT user_id, count FROM counters WHERE type = 'UnreadMessages' AND count <> 0"
OUTBOX = "SELECT status, attempt_count, count(*) FROM dialog_outbox_events GROUP BY status, attempt_count"
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_folders = itertools.count(1)


def new_user():
    """Returns a user that no other test has."""
    return new_id("user")


def counter_key(user):
    return f"counter:{user}:UnreadMessages"


def list_key(user):
    return f"counters:{user}"


# ---- clients


class Unread(Client):
    # dialogs

    def send(self, sender, receiver, text="Hello!", **options):
        return self.ask("POST", "/dialogs/send", {"receiverId": receiver, "text": text}, user=sender, **options)

    def sent_unescaped(self, sender, receiver, text):
        """Sends a text whose bytes are in the body as they are: escaped, a long one would be too large for the
        route."""
        body = json.dumps({"receiverId": receiver, "text": text}, ensure_ascii=False).encode()
        answer = self.ask("POST", "/dialogs/send", body, user=sender, headers={"Content-Type": "application/json"})
        assert answer.status == 200, answer

    def sent(self, sender, receiver, text="Hello!", **options):
        """Sends a message and returns its id."""
        answer = self.send(sender, receiver, text, **options)
        assert answer.status == 200, answer
        return answer.json()["messageId"]

    def list(self, user, other, **query):
        return self.ask("GET", "/dialogs/list?" + urlencode({"receiverId": other, **query}), user=user)

    def read(self, user, message, **options):
        return self.ask("POST", f"/dialogs/read/{quote(message, safe='')}", user=user, **options)

    def read_batch(self, user, messages, **options):
        return self.ask("POST", "/dialogs/read-batch", {"messageIds": messages}, user=user, **options)

    def read_up_to(self, user, sender, message, **options):
        return self.ask("POST", "/dialogs/read-up-to", {"senderId": sender, "messageId": message}, user=user, **options)

    def conversations(self, user, **query):
        return self.ask("GET", "/dialogs?" + urlencode(query) if query else "/dialogs", user=user)

    # counters

    def counter(self, user, prefix=""):
        return self.ask("GET", f"{prefix}/counters/user/{quote(user, safe='')}/UnreadMessages")

    def counters(self, user, prefix=""):
        return self.ask("GET", f"{prefix}/counters/user/{quote(user, safe='')}")

    def count(self, user):
        answer = self.counter(user)
        assert answer.status == 200, answer
        return answer.json()["count"]

    def wait_count(self, user, count):
        wait_until(lambda: self.count(user) == count, f"{user} has {count} unread messages")

    def follow(self, user, prefix="", **headers):
        return Follower(self.port, f"{prefix}/counters/user/{quote(user, safe='')}/stream", headers)


class Follower(EventStream):
    """The event stream of a counter."""

    def until(self, count):
        """Reads until the counter shows `count`. Returns the versions on the way, which only grow."""
        versions = []
        while True:
            version, counter = self.next()
            assert not versions or version > versions[-1], "a version went back"
            versions.append(version)
            if counter["count"] == count:
                return versions


# ---- events, as somebody else would publish them


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def stamp(when=None):
    return (when or now()).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def new_message(user, message, when=None):
    return {"recipientId": user, "messageId": message, "senderId": "somebody", "timestamp": stamp(when)}


def message_read(user, message, when=None):
    return {"userId": user, "messageId": message, "timestamp": stamp(when)}


def pascal(message):
    return {name[0].upper() + name[1:]: value for name, value in message.items()}


def envelope(message, kind, spell=lambda value: value):
    """Wraps a message as MassTransit does."""
    return spell({
        "messageId": str(uuid.uuid4()),
        "messageType": [f"urn:message:Some.Other.Namespace:{kind}"],
        "message": spell(message),
        "sentTime": stamp(),
        "headers": {},
        "host": {"machineName": "test"},
    })


# ---- what they stand on


class UnreadStack:
    def unread(self):
        """Returns {user: unread messages} for those who have any, from the table of messages."""
        return dict(self.dialogs_query(UNREAD))

    def counted(self):
        """Returns the same from the counters."""
        return dict(self.counters_query(COUNTED))

    def agrees(self):
        return self.unread() == self.counted()

    def wait_agreement(self):
        wait_until(self.agrees, "every count equals the unread messages", interval=0.1, explain=self._difference)

    def _difference(self):
        unread, counted = self.unread(), self.counted()
        wrong = {user: (unread.get(user, 0), counted.get(user, 0)) for user in unread.keys() | counted.keys()}
        wrong = {user: pair for user, pair in wrong.items() if pair[0] != pair[1]}
        return f"(unread, counted) = {wrong}, events by status and attempts = {self.dialogs_query(OUTBOX)}"


class SqliteUnread(UnreadStack):
    engine = "sqlite"

    def __init__(self, directory):
        self.data = pathlib.Path(directory) / f"unread-data-{next(_folders)}"

    def arguments(self, roles="dialogs,counters"):
        return ["--roles", roles, "--data", str(self.data)]

    def _query(self, file, sql):
        """Call it only while a server runs: the last connection to close would checkpoint the file."""
        with contextlib.closing(open_to_read(self.data / file)) as connection:
            return connection.execute(sql).fetchall()

    def dialogs_query(self, sql):
        return self._query("dialogs.db", sql)

    def counters_query(self, sql):
        return self._query("counters.db", sql)


class PostgresUnread(UnreadStack):
    engine = "postgres"

    def __init__(self, directory, database, host, redis):
        self.directory = pathlib.Path(directory)
        self.database = database
        self.host = host
        self.redis = redis

    def arguments(self, roles="dialogs,counters"):
        """A data folder of its own for every process."""
        data = self.directory / f"unread-data-{next(_folders)}"
        return ["--roles", roles, "--data", str(data), "--store", self.database.url, "--unread-bus", self.host.url,
                "--cache", self.redis.url]

    def play(self, roles):
        """Returns the same stack for a process with some roles: `serve(stack.play("dialogs"))`."""
        return Play(self, roles)

    def dialogs_query(self, sql):
        return self.database.query(sql)

    counters_query = dialogs_query

    def cached(self, user):
        """Returns what Redis has of a user's counter, or None."""
        text = self.redis.do("GET", counter_key(user))
        return json.loads(text) if text else None


class Play:
    def __init__(self, stack, roles):
        self._stack = stack
        self._roles = roles

    def arguments(self):
        return self._stack.arguments(self._roles)

"""The log of prove-load, as README.md describes it."""

import json
import pathlib
import sys

NEVER = 1 << 62
SLICES_MAX = 20  # parts of the log that are looked up for findings: each reads the whole file


class Operation:
    """One operation: what was asked, from when to when it ran, and what the client was told. A run of an hour has millions,
    so words stay text until somebody wants them."""

    __slots__ = ("id", "kind", "_words", "invoked", "answered", "status", "body", "doubtful", "repeats")

    def __init__(self, number, kind, words, invoked):
        self.id, self.kind, self._words, self.invoked = number, sys.intern(kind), words, invoked
        self.answered = NEVER  # an unknown operation may still happen
        self.status = None
        self.body = ""
        self.doubtful = False  # an attempt before the last may have had an effect
        self.repeats = None

    @property
    def arguments(self):
        return self._words.split(" ") if self._words else []

    @property
    def succeeded(self):
        return self.status is not None and 200 <= self.status < 300

    @property
    def unknown(self):
        """Nobody knows whether it happened."""
        return self.status is None

    @property
    def without_effect(self):
        """Every attempt was refused: nothing may have changed."""
        return self.status is not None and self.status >= 400 and not self.doubtful

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"operation {self.id} ({self.kind} {self._words[:80]}: {self.status})"


class Log:
    """The log of one role. `operations` are in the order in which they began."""

    def __init__(self, folder, role):
        self.role = role
        self.folder = folder
        self._path = pathlib.Path(folder) / f"{role}.log"
        self.exists = self._path.exists()
        self.prefix = ""
        self.streams = []  # (time, mark, user, rest) of event streams
        self.by_id = {}
        self._slices_left = SLICES_MAX
        if self.exists:
            self._read()

    @property
    def operations(self):
        return self.by_id.values()

    def of(self, *kinds):
        return [operation for operation in self.operations if operation.kind in kinds]

    def _read(self):
        with open(self._path, encoding="utf-8", errors="replace") as lines:
            head = next(lines).split()
            self.prefix = dict(word.split("=", 1) for word in head if "=" in word)["prefix"]
            for line in lines:
                self._take(line)

    def _take(self, line):
        at, mark, rest = line.rstrip("\n").split(" ", 2)
        if mark == ">":
            number, _target, _key, what = rest.split(" ", 3)
            kind, _, words = what.partition(" ")
            self.by_id[int(number)] = Operation(int(number), kind, words, int(at))
        elif mark == "<":
            number, status, body = rest.split(" ", 2)
            operation = self.by_id[int(number)]
            operation.answered, operation.status, operation.body = int(at), int(status), body
        elif mark == "=":
            number, status, body = rest.split(" ", 2)
            operation = self.by_id[int(number)]
            operation.repeats = (operation.repeats or []) + [(int(status), body)]
        elif mark == "?":
            operation = self.by_id[int(rest.split(" ", 1)[0])]
            operation.doubtful = operation.doubtful or operation.status is None
        elif mark in "~^$":
            user, _, more = rest.partition(" ")
            self.streams.append((int(at), mark, user, more))

    def lines_of(self, *operations):
        """Everything that the log says of some operations, in the order of time. After many findings, nothing."""
        if self._slices_left == 0:
            return []
        self._slices_left -= 1
        wanted = {str(operation.id) for operation in operations}
        with open(self._path, encoding="utf-8", errors="replace") as lines:
            return [line.rstrip("\n") for line in lines if _subject(line) in wanted]


def _subject(line):
    """The number of the operation, or the user, that a line is about."""
    words = line.split(None, 3)
    return words[2] if len(words) > 2 else ""

"""A log and tables, written by hand. Times are small numbers: an operation runs from `at` to `until`."""

import json
import pathlib
import sqlite3
import struct

import check
from check import dialogs
from check.cluster import Cluster
from check.log import Log
from check.tables import Tables

SQL = pathlib.Path(__file__).resolve().parents[3] / "sql/sqlite"
BUS = ("CREATE TABLE channels (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);"
       "CREATE TABLE messages (offset INTEGER PRIMARY KEY, channel INTEGER, headers BLOB, value BLOB);"
       "INSERT INTO channels VALUES (1, 'sms-outbound');")
PREFIX = "s1"


class Story:
    """`story.tell("counts", "increase", "s1i0", 5, value={...})` adds an operation; `story.judge("counts")` checks."""

    def __init__(self, folder):
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._data = folder / "data"
        self._data.mkdir()
        self._lines = {}
        self._databases = {}
        self._number = 0
        self.cluster = Cluster(str(self._data), settle_s=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for database in self._databases.values():
            database.close()

    # ---- the log ----

    def tell(self, role, kind, *arguments, answer=None, status=200, at=None, until=None, doubtful=False, key=True):
        """An operation that ran from `at` to `until`; with status None it stays unknown. Returns its number."""
        self._number += 1
        number = self._number
        at = 10 * number if at is None else at
        until = at + 5 if until is None else until
        lines = self._lines.setdefault(role, [])
        words = " ".join(map(str, arguments))
        lines.append((at, f"> {number} 0 {f'{PREFIX}-o{number}' if key else '-'} {kind} {words}"))
        if doubtful or status is None:
            lines.append((at, f"? {number} lost"))
        if status is None:
            lines.append((until, f"! {number}"))
        else:
            lines.append((until, f"< {number} {status} {json.dumps(answer if answer is not None else {})}"))
        return number

    def repeat(self, role, number, answer, status=200):
        self._lines[role].append((10 ** 6, f"= {number} {status} {json.dumps(answer)}"))

    def stream(self, user, version, count):
        lines = self._lines.setdefault("counters", [])
        lines.append((len(lines), f"~ {user} {version} {json.dumps({'userId': user, 'count': count})}"))

    def open_stream(self, user):
        lines = self._lines.setdefault("counters", [])
        lines.append((len(lines), f"^ {user} 0"))

    # ---- the tables ----

    def _create(self, name):
        database = sqlite3.connect(self._data / f"{name}.db", isolation_level=None)
        database.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
        return database

    def database(self, service):
        """The tables of a service, made by its own migrations."""
        if service not in self._databases:
            self._databases[service] = self._create(service)
            for script in sorted((SQL / service).glob("*.sql")):
                self._databases[service].executescript(script.read_text())
        return self._databases[service]

    def row(self, service, table, **values):
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self.database(service).execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def publish(self, number, user, window, message=None):
        """A message on the topic of sends, by the operation with this number."""
        if "gateway-bus" not in self._databases:
            self._databases["gateway-bus"] = self._create("gateway-bus")
            self._databases["gateway-bus"].executescript(BUS)
        value = {"messageId": message or f"id{number}", "userId": user, "message": f"m{number}"}
        headers = b"".join(struct.pack("=I", len(word)) + word for word in (b"window-start", window.encode()))
        self._databases["gateway-bus"].execute("INSERT INTO messages (channel, headers, value) VALUES (1, ?, ?)",
                                               (headers, json.dumps(value).encode()))

    # ---- the judgment ----

    def invariants(self, role):
        """All invariants of a role: {name: Invariant}."""
        for name, lines in self._lines.items():
            text = "".join(f"{at} {line}\n" for at, line in sorted(lines, key=lambda line: line[0]))
            (self._logs / f"{name}.log").write_text(f"# prove-load 1 seed=1 prefix={PREFIX} start=0\n{text}")
        with Tables(self.cluster) as tables:
            log = Log(self._logs, role)
            invariants = [check.answers.check_statuses(log), check.answers.check_repeats(log),
                          *check.MODELS[role].check(log, tables, self.cluster)]
        return {invariant.name.split(": ", 1)[1]: invariant for invariant in invariants}

    def judge(self, role):
        """The invariants of a role that do not hold: {name: findings}."""
        return {name: invariant.findings for name, invariant in self.invariants(role).items() if not invariant.holds}

    def uncounted(self):
        return dialogs.uncounted(self.cluster)

    def streams_behind(self):
        """Of the logs that the last judgment wrote."""
        return dialogs.streams_behind(self._logs, self.cluster)

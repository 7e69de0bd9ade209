"""`quipu verify`: how tests call it, create traffic for every service, and damage tables behind the program's back."""

import contextlib
import json
import sqlite3
import threading
from urllib.parse import quote

from .counts import new_key
from .http import Connection
from .pots import coins, encode, path_of
from .quipu import run

SERVICES = ["counts", "limits", "entitlements", "notifications", "pots", "dialogs", "unread"]


def verify(binary, server, *arguments):
    return run(binary, "verify", *arguments, "--server", f"http://127.0.0.1:{server.port}")


def verified(binary, server, service):
    """Returns the differences of a service as {(id, what)}, and how many rows were checked."""
    told = verify(binary, server, service, "--json")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    found, end = lines[:-1], lines[-1]
    assert end["service"] == service and end["differences"] == len(found), told
    assert told.returncode == (1 if found else 0), told
    assert all(line["service"] == service and line["detail"] for line in found), told
    return {(line["id"], line["what"]) for line in found}, end["checked"]


def walk(server, service, limit, pages=None):
    """Reads every page of a service, or the first `pages`. Returns the differences, and how many rows each page has
    checked."""
    differences, checked, after = [], [], ""
    while after is not None and (pages is None or len(checked) < pages):
        answer = server.ask("GET", f"/operator/verify/{service}?limit={limit}&after={quote(after, safe='')}")
        assert answer.status == 200, answer
        page = answer.json()
        differences += page["differences"]
        checked.append(page["checked"])
        after = page["next"]
    return differences, checked


class Traffic:
    """One keep-alive connection that sends every kind of request that a service has."""

    def __init__(self, port):
        self._connection = Connection(port)

    def close(self):
        self._connection.close()

    def post(self, target, body, key=None, content_type="application/json"):
        headers = {"Content-Type": content_type, "X-User-Id": "alice"}
        if key:
            headers["Idempotency-Key"] = key
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self._connection.ask("POST", target, data, headers)
        assert answer.status < 500, answer
        return answer

    def counts(self, name):
        self.post("/api/v1/internal/counts", {"itemId": name, "initialValue": 3}, new_key())
        self.post(f"/api/v1/counts/{name}/increase", {"amount": 4}, new_key())
        self.post(f"/api/v1/counts/{name}/increase", {})
        self.post(f"/api/v1/counts/{name}/reset", {}, new_key())
        self.post("/api/v1/counts/nobody/decrease", {}, new_key())

    def limits(self, name):
        """Sends one more than the limit allows, with and without keys; every call is a new window."""
        self.post("/api/config", {"userId": name, "rateLimit": 3, "timeWindow": 525600}, new_key())
        for key in (new_key(), None, new_key(), None):
            self.post("/api/send", {"userId": name, "message": "hello"}, key)

    def entitlements(self, name):
        """Changes the status three times, is refused once, and changes sources twice without changing the status."""
        first, second, third = (new_key() for _ in range(3))
        for verb, purchase in (("grants", first), ("revokes", first), ("grants", second), ("grants", second),
                               ("grants", third), ("revokes", second)):
            self.post(f"/v1/entitlements/{verb}", {
                "user_id": name, "stock_keeping_unit": "item", "reason": "purchase", "purchase_id": purchase}, new_key())

    def pots(self, name):
        fields = {"pot_name": name.replace("-", "x"), "max_coins": 20}
        pot = self.post(path_of("CreatePot"), encode("CreatePot", fields, "json"), new_key()).json().get("pot_id")
        for method, more in (
            ("AddCoins", {"coins": coins(gold=12, bronze=7)}),
            ("AddCoins", {"coins": coins(silver=12)}),  # too many
            ("RemoveCoins", {"count": 5}),
        ) if pot else ():
            self.post(path_of(method), encode(method, {"pot_id": pot, **more}, "json"), new_key())

    def unread(self, name):
        self.post("/dialogs/send", {"receiverId": name, "text": "hello"}, new_key())

    def all(self, name):
        for service in (self.counts, self.limits, self.entitlements, self.pots, self.unread):
            service(name)


@contextlib.contextmanager
def load(server, names, threads=4):
    """Threads that send everything for the same few names, over and over, while the block runs."""
    stop = threading.Event()
    problems = []

    def work(number):
        traffic = Traffic(server.port)
        try:
            while not stop.is_set():
                traffic.all(names[number % len(names)])
                number += 1
        except Exception as problem:  # noqa: BLE001  (told by the thread that waits)
            problems.append(problem)
        finally:
            traffic.close()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not problems, problems


def damage(store, file, statements):
    """Runs statements behind the program's back, while it does not run, without the schema's own checks."""
    if store.name == "postgres":
        for statement in statements:
            store.database.query(statement)
        return
    with contextlib.closing(sqlite3.connect(store.data / file)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            connection.execute(statement)


def query(store, file, sql):
    """Returns rows, while the program does not run."""
    if store.name == "postgres":
        return store.database.query(sql)
    with contextlib.closing(sqlite3.connect(store.data / file)) as connection:
        return connection.execute(sql).fetchall()


def from_now(store, seconds):
    """Returns SQL for a time this many seconds from now."""
    if store.name == "postgres":
        return f"(now() + interval '{seconds} seconds')"  # a cluster cannot use clock_timestamp() in an UPDATE
    return f"(cast((julianday('now') - 2440587.5) * 86400000000 as integer) + {seconds} * 1000000)"


def octets(store, text):
    """Returns SQL for the bytes of a text."""
    return f"convert_to('{text}', 'UTF8')" if store.name == "postgres" else f"cast('{text}' as blob)"

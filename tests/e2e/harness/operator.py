"""A server that pretends to have the operator's routes, and helpers for commands that refuse or fail."""

import base64
import json
import socket
import threading
import urllib.parse

import pytest

from . import quipu
from .receivers import Handler, Receiver, running

KINDS = ["outbox", "dialog-outbox", "notification", "poison", "sms"]


def letter(kind, number, **more):
    return {
        "id": f"id-{number}", "kind": kind, "event_type": "EntitlementGranted", "aggregate_key": f"user-{number}:gold",
        "position": "", "error": "HTTP 500", "attempt_count": 10, "created_at": "2026-01-08T07:10:00Z", **more,
    }


class Problem(Exception):
    def __init__(self, status, code, detail):
        super().__init__(detail)
        self.status = status
        self.body = {"type": "about:blank", "title": "Title", "status": status, "code": code, "detail": detail}


class Operator(Handler):
    """The operator's routes, on letters that a test puts into `self.server.letters`."""

    def do_GET(self):
        self.serve()

    def do_POST(self):
        self.serve()

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, dict(self.headers.items()), body))
        with self.server.lock:
            override = self.server.overrides.get(urllib.parse.urlsplit(self.path).path)
        if override:
            override(self)
            return
        try:
            answer, headers = self.route(json.loads(body) if body else None)
            self.send(200, answer, headers)
        except Problem as problem:
            self.send(problem.status, problem.body, {}, "application/problem+json")

    def send(self, status, answer, headers=None, content_type="application/json"):
        data = answer if isinstance(answer, bytes) else json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def route(self, body):
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        match [urllib.parse.unquote(part) for part in path.split("/")[1:]]:
            case ["operator", "dlq", kind] if kind in self.server.letters and self.command == "GET":
                return self.list(kind, query)
            case ["operator", "dlq", kind, name] if kind in self.server.letters and self.command == "GET":
                found = self.find(kind, name)
                return {**found, "payload": base64.b64encode(b"\x00\x01").decode(), "event": {"user_id": "ü"}}, {}
            case ["operator", "dlq", kind, name, "replay"] if kind in self.server.letters and body is None:
                return self.settle(kind, name, "REPLAYED", {})
            case ["operator", "dlq", kind, name, "discard"] if kind in self.server.letters and body["why"]:
                return self.settle(kind, name, "DISCARDED", body)
            case ["operator", "outbox", "resend"] if "outbox" in self.server.letters:
                self.server.since = body["since"]
                return {"resent": self.server.resent}, {}
        raise Problem(404, "ROUTE_NOT_FOUND", "nothing is served here")

    def list(self, kind, query):
        """A page goes on after an id, as the real server's does, so that letters may go meanwhile."""
        after = int(query.get("after", "id--1").removeprefix("id-"))
        letters = [one for one in self.server.letters[kind] if int(one["id"].removeprefix("id-")) > after]
        page = letters[: min(int(query.get("limit", 50)), self.server.page)]
        headers = {}
        if len(page) < len(letters):
            headers["Link"] = f'</operator/dlq/{kind}?limit={query.get("limit", 50)}&after={page[-1]["id"]}>; rel="next"'
        return {"letters": page}, headers

    def find(self, kind, name):
        for one in self.server.letters[kind]:
            if one["id"] == name:
                return one
        raise Problem(404, "DEAD_LETTER_NOT_FOUND", f'no dead letter of the kind {kind} has the id "{name}"')

    def settle(self, kind, name, resolution, body):
        found = self.find(kind, name)
        if found["event_type"] is None and resolution == "REPLAYED":
            raise Problem(409, "DEAD_LETTER_UNREADABLE", "its event cannot be read, so it cannot be sent again")
        self.server.letters[kind].remove(found)
        self.server.settled.append((kind, name, resolution, body.get("why")))
        return {"id": name, "kind": kind, "resolution": resolution}, {}


class Server(Receiver):
    def __init__(self, address=("127.0.0.1", 0)):
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(Operator, address)
        self.lock = threading.Lock()
        self.letters = {kind: [] for kind in KINDS}
        self.requests = []
        self.overrides = {}
        self.settled = []
        self.page = 50
        self.resent = 0
        self.since = None
        self.url = f"http://127.0.0.1:{self.server_port}"

    def override(self, path, answer):
        with self.lock:
            self.overrides[path] = answer


def refused(done, *words):
    """Checks that a wrong command line exits with 2, prints a sentence, and prints nothing on standard output."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
    return done.stderr.startswith("quipu: ")


def failed(done, message):
    assert done.returncode == 1
    assert done.stderr == f"quipu: {message}\n"


# ---- fixtures of the files that import them


@pytest.fixture
def server():
    with running(Server()) as one:
        yield one


@pytest.fixture
def run(binary, tmp_path):
    """Runs a command of the program, in the test's folder."""

    def command(*arguments, **more):
        return quipu.run(binary, *arguments, cwd=tmp_path, **more)

    return command


@pytest.fixture
def ask(run, server):
    """Runs a command against the test's server."""
    return lambda *arguments, **more: run(*arguments, "--server", server.url, **more)

"""A proxy between a client and a server that does to chosen requests what networks do: it loses answers, cuts connections,
or answers in the server's place. Everything else it passes on, streams included."""

import contextlib
import http.client
import http.server
import json
import threading
import time
from collections import deque

from .waiting import HANG_S

HOP_BY_HOP = {"host", "connection", "transfer-encoding", "keep-alive", "content-length"}


def lose_answer(exchange):
    """The server has done it; the client gets nothing."""
    exchange.forward()
    exchange.cut()


def lose_request(exchange):
    """The request never arrives."""
    exchange.cut()


def say_unknown(exchange):
    """The server has done it, but lost its database while it committed."""
    exchange.forward()
    exchange.problem(503, "OUTCOME_UNKNOWN", retry_after=1)


def say_unauthenticated(exchange):
    """The API key was replaced: the server does not look at what was asked."""
    exchange.problem(401, "UNAUTHENTICATED", retry_after=0)


def say_overloaded(exchange):
    exchange.problem(503, "OVERLOADED", retry_after=1)


def say_bad_gateway(exchange):
    """As a proxy says it whose server has just gone: no JSON, and nobody knows what happened."""
    exchange.forward()
    exchange.answer(502, {"Content-Type": "text/html"}, b"<h1>Bad Gateway</h1>")


class LossyProxy:
    """`faults` are functions that take an exchange; each is used once, in order. `seen` has every request."""

    def __init__(self, target):
        self.target = target
        self.faults = deque()
        self.seen = []
        self.unreachable = 0
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Exchange,), {"proxy": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Seen:
    """A request, and how it was answered: None if it was not. Names of headers may be in any case."""

    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self.status = None
        self.retry_after_s = 0.0
        self.asked_at = time.monotonic()
        self.answered_at = None

    @property
    def key(self):
        return self.headers.get("Idempotency-Key")


class _Exchange(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy = None

    def do_GET(self):
        self._take()

    def do_POST(self):
        self._take()

    def log_message(self, *_):
        pass

    def _take(self):
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.request_seen = Seen(self.command, self.path, self.headers, body)
        fault = self.proxy.faults.popleft() if self.proxy.faults else _Exchange.pass_on
        self.proxy.seen.append(self.request_seen)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client has gone
            try:
                fault(self)
            except ConnectionRefusedError:
                self.proxy.unreachable += 1
            except (http.client.HTTPException, ConnectionError):
                pass  # the server was killed meanwhile: the client sees its connection end

    def _ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.target, timeout=HANG_S)
        headers = {name: value for name, value in self.request_seen.headers.items() if name.lower() not in HOP_BY_HOP}
        connection.request(self.command, self.path, self.request_seen.body or None, headers)
        return contextlib.closing(connection), connection.getresponse()

    def forward(self):
        """Lets the server do it, and returns its answer."""
        connection, answer = self._ask()
        with connection:
            return answer.status, answer.headers, answer.read()

    def pass_on(self):
        connection, answer = self._ask()
        with connection:
            self._begin(answer.status, answer.headers)
            while piece := answer.read1(65536):
                self.wfile.write(piece)
                self.wfile.flush()

    def cut(self):
        self.close_connection = True

    def problem(self, status, code, retry_after):
        body = json.dumps({"type": "about:blank", "title": "", "status": status, "code": code, "detail": ""}).encode()
        self.answer(status, {"Content-Type": "application/problem+json", "Retry-After": str(retry_after)}, body)

    def answer(self, status, headers, body):
        self._begin(status, {**headers, "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _begin(self, status, headers):
        seen = self.request_seen
        seen.status, seen.answered_at = status, time.monotonic()
        seen.retry_after_s = float(headers.get("Retry-After", 0))
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in HOP_BY_HOP - {"content-length"}:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()

"""A receiver of webhooks. What it answers is what a test last put into `behaviour`, for all or by user."""

import contextlib
import json
import threading

from .receivers import Handler, Receiver, running


class _Handler(Handler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        behaviour = self.server.receiver.note(text, dict(self.headers.items()))
        if behaviour == "hang":
            self.server.receiver.ended.wait()
        if behaviour in ("hang", "close"):
            self.close_connection = True
            return
        status, retry_after = behaviour if isinstance(behaviour, tuple) else (behaviour, None)
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", f"{self.server.receiver.url}/elsewhere")
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST


class Webhook:
    """Behaviours: a status, a status with a Retry-After, "hang" (no answer until the end), "close" (the connection,
    without an answer)."""

    def __init__(self, port=0, user="user_id"):
        self._user = user  # the member that names the user
        self._lock = threading.Lock()
        self.behaviour = 200
        self.of_user = {}  # user_id -> behaviour
        self.received = []  # (body, headers)
        self._texts = []  # (user_id, body as it came, headers in lower case)
        self.ended = threading.Event()
        self._server = Receiver(_Handler, ("127.0.0.1", port))
        self._server.receiver = self
        self._running = contextlib.ExitStack()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def channel(self):
        return f"webhook:{self.url}/hook"

    def note(self, text, headers):
        body = json.loads(text)
        with self._lock:
            self.received.append((body, headers))
            self._texts.append((body[self._user], text, {name.lower(): value for name, value in headers.items()}))
            return self.of_user.get(body[self._user], self.behaviour)

    def of(self, user):
        """What came for a user."""
        with self._lock:
            return [(body, headers) for body, headers in self.received if body[self._user] == user]

    def raw_of(self, user):
        """What came for a user, byte for byte."""
        with self._lock:
            return [(text, headers) for owner, text, headers in self._texts if owner == user]

    def __enter__(self):
        self._running.enter_context(running(self._server))
        return self

    def __exit__(self, *_):
        self.ended.set()
        self._running.close()

"""HTTP/1.1 as clients speak it, in three layers.

`Connection` is a bare socket: it can send what a proper client would refuse to send. `Client` keeps one open and
checks every answer against the OpenAPI document; the clients of the services are built on it. `EventStream` reads one
event after another.

None of them retries or repairs anything: the test sees exactly what the server did."""

import contextlib
import dataclasses
import http.client
import json
import re
import selectors
import socket
import ssl
import struct

from .waiting import HANG_S, wait_until


class ConnectionLost(Exception):
    """The server closed the connection before the whole answer had arrived."""


@dataclasses.dataclass
class Answer:
    status: int
    version: str
    headers: list  # of (lower-case name, value), in the order in which they came
    body: bytes

    def header(self, name):
        values = [value for key, value in self.headers if key == name.lower()]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    def json(self):
        return json.loads(self.body)

    def next_page(self):
        """Returns the target of its Link to the next page, or None if it has no Link."""
        link = self.header("link")
        if link is None:
            return None
        return re.fullmatch(r'<([^>]+)>; rel="next"', link)[1]

    @property
    def code(self):
        """Returns the stable code of a problem+json."""
        return self.json()["code"]


def render(method, target, body=None, headers=None, host="127.0.0.1", version="HTTP/1.1"):
    """Returns the bytes of one request. A dict or list as body is sent as JSON, bytes as they are, None as no body."""
    lines = [f"{method} {target} {version}", f"Host: {host}"]
    fields = list((headers or {}).items()) if not isinstance(headers, list) else list(headers)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None:
        if not any(name.lower() == "content-type" for name, _ in fields):
            fields.append(("Content-Type", "application/json"))
        fields.append(("Content-Length", str(len(body))))
    lines += [f"{name}: {value}" for name, value in fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


def dial(port, timeout=HANG_S, receive_buffer=None):
    """Returns a socket that is connected to a server. With a small `receive_buffer` the kernel reads little ahead of
    us."""
    client = socket.socket()
    try:
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(timeout)
        client.connect(("127.0.0.1", port))
    except BaseException:
        client.close()
        raise
    return client


def reset_on_close(client):
    """Makes closing send a reset instead of an orderly end. So thousands of sockets leave none in TIME-WAIT, which
    would slow down later tests."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# ---- a bare connection


class Connection:
    """A bare connection. `tls` is an ssl.SSLContext, or None for plain HTTP."""

    def __init__(self, port, timeout=HANG_S, tls=None):
        self.port = port
        self._received = b""
        self._ended = False
        self.socket = dial(port, timeout)
        if tls is not None:
            self._greet(tls)

    def _greet(self, tls):
        """An end without close_notify is an error (ssl.SSLEOFError), not the end of an answer."""
        try:
            self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def abort(self):
        """Disappears: the server gets a reset, not an orderly end."""
        reset_on_close(self.socket)
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, socket.timeout, ssl.SSLError) as error:
            raise ConnectionLost(f"while sending: {error!r}") from error

    def try_send(self, data):
        """Sends a request that the server may refuse before it has read all of it."""
        with contextlib.suppress(ConnectionLost):
            self.send(data)

    def ask(self, method, target, body=None, headers=None):
        self.send(render(method, target, body, headers, host=f"127.0.0.1:{self.port}"))
        return self.read_answer(method)

    def read_answer(self, method="GET"):
        """Returns the next answer, even an interim one (100). `method` decides whether a body follows."""
        head = self._take_until(b"\r\n\r\n").decode("latin-1")
        start, *lines = head.split("\r\n")
        version, status, *_ = start.split(" ", 2)
        headers = []
        for line in lines:
            name, value = line.split(":", 1)
            headers.append((name.lower(), value.strip()))
        answer = Answer(int(status), version, headers, b"")
        if method != "HEAD" and answer.status >= 200 and answer.status not in (204, 304):
            answer.body = self._read_body(answer)
        return answer

    def _read_body(self, answer):
        if answer.header("transfer-encoding") == "chunked":
            return self._read_chunks()
        length = answer.header("content-length")
        assert length is not None, f"an answer without a length: {answer}"
        return self._take(int(length))

    def _read_chunks(self):
        body = b""
        while True:
            size = int(self._take_until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                while self._take_until(b"\r\n"):
                    pass
                return body
            body += self._take(size)
            assert self._take(2) == b"\r\n"

    def _take_until(self, mark):
        while mark not in self._received:
            self._receive()
        taken, self._received = self._received.split(mark, 1)
        return taken

    def _take(self, size):
        while len(self._received) < size:
            self._receive()
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _receive(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionError as error:
            raise ConnectionLost(repr(error)) from error
        if not data:
            self._ended = True
            raise ConnectionLost(f"closed by the server; unread: {self._received!r}")
        self._received += data

    def readable(self, timeout):
        """Returns whether the server sent something, or closed, within `timeout` seconds."""
        if self._received or self._ended or (isinstance(self.socket, ssl.SSLSocket) and self.socket.pending()):
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            return bool(selector.select(timeout))

    def assert_closed(self, timeout=HANG_S):
        """Checks that the server closes the connection and has sent nothing more."""
        assert self._received == b"", f"unread: {self._received!r}"
        if self._ended:
            return
        assert self.readable(timeout), f"the connection is still open after {timeout:g} s"
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        assert data == b"", f"instead of closing, the server sent {data!r}"
        self._ended = True

    def wait_read_by_server(self):
        """Returns when the server has read everything, so that it gets the next bytes with a read of their own."""
        wait_until(lambda: self._unread_by_server() == 0, "the server reads")

    def _unread_by_server(self):
        """Returns how many bytes the server has not read, or None if that is not known: a connection may be missing
        from the kernel's table while others come and go. Raises ConnectionLost if the server has answered or closed
        instead."""
        unread = _receive_queue(self.port, self.socket.getsockname()[1])
        if unread is None and self.readable(0):
            raise ConnectionLost(f"instead of reading, the server said {self.socket.recv(4096)!r}")
        return unread


def _receive_queue(server_port, client_port):
    """Returns how many bytes the server's end of a loopback connection has not read; None if the table does not show
    it."""
    ends = (f":{server_port:04X}", f":{client_port:04X}")
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                return int(fields[4].split(":")[1], 16)
    return None


def ask_all(requests):
    """Sends all requests at one moment, each on a connection of its own, and returns the answers in their order.

    `requests` are pairs of a port and the request's bytes. All connections are open before the first byte is sent."""
    requests = list(requests)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(port)) for port, _ in requests]
        for connection, (_, data) in zip(connections, requests):
            connection.send(data)
        return [connection.read_answer() for connection in connections]


def ask_at_once(server, requests):
    """The same, but all requests have arrived before the server reads the first: it is stopped meanwhile."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in requests]
        with server.frozen():
            for connection, request in zip(connections, requests):
                connection.send(request)
        return [connection.read_answer() for connection in connections]


def ask_behind_a_commit(server, gate, requests):
    """All requests but the first wait in their lane while the first is held in its commit, by a failpoint with `gate`."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in requests]
        connections[0].send(requests[0])
        with open(gate, "wb"):  # as soon as the failpoint is reached; closing it lets the commit go on
            for connection, request in zip(connections[1:], requests[1:]):
                connection.send(request)
            wait_until(lambda: server.metric("quipu_lane_depth") == len(requests) - 1, "all others wait in the lane")
        return [connection.read_answer() for connection in connections]


# ---- a connection that is kept


class Client:
    """One keep-alive connection to one server. No request is ever repeated; every answer must be in the OpenAPI
    document."""

    def __init__(self, port, openapi):
        self.port = port
        self._openapi = openapi
        self._connection = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method, target, body=None, headers=None, key=None, user=None):
        headers = dict(headers or {})
        if user is not None:
            headers["X-User-Id"] = user
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.exchange(method, target, render(method, target, body, headers, host=f"127.0.0.1:{self.port}"))

    def exchange(self, method, target, request):
        """Sends the bytes of one request; its answer is checked against the document's entry for `method` and
        `target`."""
        if self._connection is None:
            self._connection = Connection(self.port)
        try:
            self._connection.send(request)
            answer = self._connection.read_answer(method)
        except Exception:
            self.close()
            raise
        if answer.header("connection") == "close":
            self.close()
        self._openapi.check_answer(method, target, answer)
        return answer


# ---- event streams


class EventStream:
    """One event stream, read by http.client, which knows nothing of event streams and so reads what any client
    would."""

    def __init__(self, port, target, headers=None):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
        self._connection.request("GET", target, headers=headers or {})
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200, self.answer.status
        assert self.answer.getheader("Content-Type") == "text/event-stream"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.answer.close()
        self._connection.close()

    def read_line(self):
        return self.answer.readline()

    def next(self):
        """Returns the next event as (version, data), or None if the stream has ended. Skips comments and retry
        times."""
        event = {}
        while line := self.read_line():
            if line == b"\n" and "data" in event:
                return int(event["id"]), json.loads(event["data"])
            name, _, value = line.decode().rstrip("\n").partition(": ")
            event[name] = value
        return None

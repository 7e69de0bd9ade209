"""Event streams of a real process: thousands of them, what they cost, and how they end.

The process is tests/unit/stream_server, a small service on the server's own streams. Details of the protocol are in
tests/unit/test_stream.c, many publishers in test_hub.c.
"""

import contextlib
import http.client
import re
import resource
import selectors
import signal
import socket
import struct

import pytest

from harness.quipu import Quipu
from harness.waiting import HANG_S, wait_until

# How many streams at once.
CROWD = [500, pytest.param(5000, marks=pytest.mark.full)]
KIB_PER_STREAM = 32
HOUR_MS = 3600 * 1000
EVENT = re.compile(rb"id: (\d+)\ndata: [^\n]*\n\n")


class StreamServer(Quipu):
    def __init__(self, binary, directory, loops=2, heartbeat_ms=15000, stall_ms=30000):
        super().__init__(binary, [], directory)
        program = binary.parent / "tests" / "unit" / "stream_server"
        assert program.exists(), f"no program at {program}"
        self._words = [str(program), str(loops), str(heartbeat_ms), str(stall_ms)]

    def follow(self, key, **headers):
        """http.client knows nothing of event streams: what it reads is what any HTTP client would."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        connection.request("GET", f"/streams/{key}", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer

    def change(self, key, times=1, pad=0):
        return int(self.ask("POST", f"/values/{key}?times={times}&pad={pad}").body)

    def keys(self):
        return int(self.ask("GET", "/keys").body)


@pytest.fixture
def stream_server(binary, tmp_path):
    """Starts servers: `stream_server(heartbeat_ms=100)`."""
    servers = []

    def start(**settings):
        server = StreamServer(binary, tmp_path / f"server-{len(servers)}", **settings)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.close()


def read_event(answer):
    """The next event of a stream: (id, data). Comments and retry times are passed over."""
    event = {}
    while True:
        line = answer.readline()
        assert line, "the stream has ended"
        if line == b"\n" and "data" in event:
            return int(event["id"]), event["data"]
        name, _, value = line.decode().rstrip("\n").partition(": ")
        event[name] = value


class Crowd:
    """Many streams, each on a bare socket; knows the last id of each."""

    def __init__(self, port, keys):
        self.selector = selectors.DefaultSelector()
        self.last = {}
        self.unread = {}
        self.sockets = []
        for key in keys:
            client = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
            client.sendall(f"GET /streams/{key} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            client.setblocking(False)
            self.selector.register(client, selectors.EVENT_READ)
            self.sockets.append(client)
            self.unread[client] = b""
        self.ended = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.sockets:  # by a reset: thousands in TIME-WAIT would slow down whoever comes next
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        self.selector.close()

    def _read(self, client):
        try:
            data = client.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.ended.add(client)
            self.selector.unregister(client)
        self.unread[client] += data
        end = 0
        for event in EVENT.finditer(self.unread[client]):
            version = int(event.group(1))
            assert version > self.last.get(client, -1), "a value went back"
            self.last[client] = version
            end = event.end()
        self.unread[client] = self.unread[client][end:]

    def read_until(self, condition, what):
        def has_read():
            for key, _ in self.selector.select(0.1):
                self._read(key.fileobj)
            return condition(self)

        wait_until(has_read, what, interval=0)

    def all_at(self, version):
        return len(self.last) == len(self.sockets) and all(last == version for last in self.last.values())


@pytest.fixture(params=CROWD)
def many(request):
    """How many streams there can be: every one is a file on both sides."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(request.param, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_plain_http_client_sees_the_value_and_its_changes(stream_server):
    server = stream_server()
    assert server.change("a") == 1
    answer = server.follow("a")
    assert answer.getheader("Content-Type") == "text/event-stream"
    assert read_event(answer) == (1, '{"key":"a","version":1,"pad":""}')
    for version in range(2, 20):
        assert server.change("a") == version
        assert read_event(answer)[0] == version
    answer.close()
    wait_until(lambda: server.keys() == 0, "the stream is forgotten")
    resumed = server.follow("a", **{"Last-Event-ID": "19"})
    server.change("a")
    assert read_event(resumed)[0] == 20
    resumed.close()


def test_thousands_of_streams_are_small_and_all_get_the_last_value(stream_server, many):
    server = stream_server()
    keys = [f"user{i}" if i % 2 else "everybody" for i in range(many)]
    assert server.change("warm") == 1
    empty_kib = server.resident_kib()
    with Crowd(server.port, keys) as crowd:
        crowd.read_until(lambda c: c.all_at(0), "every stream has its first value")
        each_kib = (server.resident_kib() - empty_kib) / many
        print(f"{each_kib:.2f} KiB a stream, {many} streams")
        assert each_kib < KIB_PER_STREAM
        assert server.metric("quipu_http_streams") == many
        assert server.keys() == len(set(keys))
        with server.connect() as publisher:
            for key in dict.fromkeys(keys):
                assert publisher.ask("POST", f"/values/{key}?times=5").body == b"5"
        crowd.read_until(lambda c: c.all_at(5), "every stream has the last value")
        assert not crowd.ended
        each_kib = (server.resident_kib() - empty_kib) / many
        print(f"{each_kib:.2f} KiB a stream after its changes")
        assert each_kib < KIB_PER_STREAM
    wait_until(lambda: server.metric("quipu_http_streams") == 0, "all streams are forgotten")
    assert server.keys() == 0


def test_sigterm_ends_every_stream(stream_server, many):
    """The drain ends them, not a heartbeat that fails nor a client that stalls: both are an hour away."""
    server = stream_server(heartbeat_ms=HOUR_MS, stall_ms=HOUR_MS)
    with Crowd(server.port, ["a"] * many) as crowd:
        crowd.read_until(lambda c: c.all_at(0), "every stream has its first value")
        server.signal(signal.SIGTERM)
        crowd.read_until(lambda c: len(c.ended) == many, "every stream has ended")
    assert server.wait_exit() == 0
    assert "drained in" in server.output.read_text()


@contextlib.contextmanager
def slow_reader(server):
    """The client of a stream, with little room for what it does not read."""
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(HANG_S)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(b"GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: server.metric("quipu_http_streams") == 1, "the stream is open")
        yield slow


def test_a_reader_that_sleeps_skips_to_the_newest(stream_server):
    server = stream_server(stall_ms=HOUR_MS)
    with slow_reader(server) as slow:
        while server.metric("quipu_http_stream_events_skipped_total") < 20:
            last = server.change("a", pad=1000)
        received = b""
        while f"id: {last}\n".encode() not in received:
            data = slow.recv(65536)
            assert data, "the stream has ended"
            received += data
        ids = [int(event.group(1)) for event in EVENT.finditer(received)]
        assert ids == sorted(set(ids)) and len(ids) < last


def test_a_reader_that_stops_is_closed(stream_server):
    server = stream_server(heartbeat_ms=HOUR_MS, stall_ms=50)
    with slow_reader(server):

        def is_closed():
            server.change("a", pad=1000)
            return server.metric("quipu_http_streams") == 0

        wait_until(is_closed, "the stream is closed")
    assert server.keys() == 0


def test_heartbeats_find_clients_and_clients_find_heartbeats(stream_server):
    server = stream_server(heartbeat_ms=200)
    answer = server.follow("a")
    read_event(answer)
    assert [answer.readline() for _ in range(4)] == [b": keep-alive\n", b"\n"] * 2
    answer.close()
    wait_until(lambda: server.metric("quipu_http_connections") == 1, "only the one that asks is left")

"""Event streams of a real process: thousands of them, what they cost, and how they end.

The process is tests/unit/stream_server, a small service on the server's own streams. Details of the protocol are in
tests/unit/test_stream.c, many publishers in test_hub.c.
"""

import contextlib
import re
import signal

import pytest

from harness.http import EventStream, dial, render
from harness.quipu import Quipu
from harness.streams import Crowd, room_for
from harness.waiting import wait_until

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
        return EventStream(self.port, f"/streams/{key}", headers)

    def crowd(self, keys):
        return Crowd(self.port, [f"/streams/{key}" for key in keys], EVENT)

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


@pytest.fixture(params=CROWD)
def many(request):
    with room_for(request.param) as count:
        yield count


def test_a_plain_http_client_sees_the_value_and_its_changes(stream_server):
    server = stream_server()
    assert server.change("a") == 1
    with server.follow("a") as stream:
        assert stream.next() == (1, {"key": "a", "version": 1, "pad": ""})
        for version in range(2, 20):
            assert server.change("a") == version
            assert stream.next()[0] == version
    wait_until(lambda: server.keys() == 0, "the stream is forgotten")
    with server.follow("a", **{"Last-Event-ID": "19"}) as resumed:
        server.change("a")
        assert resumed.next()[0] == 20


def test_thousands_of_streams_are_small_and_all_get_the_last_value(stream_server, many):
    server = stream_server()
    keys = [f"user{i}" if i % 2 else "everybody" for i in range(many)]
    assert server.change("warm") == 1
    empty_kib = server.resident_kib()
    with server.crowd(keys) as crowd:
        crowd.read_until(lambda: crowd.all_at(0), "every stream has its first value")
        each_kib = (server.resident_kib() - empty_kib) / many
        print(f"{each_kib:.2f} KiB a stream, {many} streams")
        assert each_kib < KIB_PER_STREAM
        assert server.metric("quipu_http_streams") == many
        assert server.keys() == len(set(keys))
        with server.connect() as publisher:
            for key in dict.fromkeys(keys):
                assert publisher.ask("POST", f"/values/{key}?times=5").body == b"5"
        crowd.read_until(lambda: crowd.all_at(5), "every stream has the last value")
        assert not crowd.ended
        each_kib = (server.resident_kib() - empty_kib) / many
        print(f"{each_kib:.2f} KiB a stream after its changes")
        assert each_kib < KIB_PER_STREAM
    wait_until(lambda: server.metric("quipu_http_streams") == 0, "all streams are forgotten")
    assert server.keys() == 0


def test_sigterm_ends_every_stream(stream_server, many):
    """The drain ends them, not a heartbeat that fails nor a client that stalls: both are an hour away."""
    server = stream_server(heartbeat_ms=HOUR_MS, stall_ms=HOUR_MS)
    with server.crowd(["a"] * many) as crowd:
        crowd.read_until(lambda: crowd.all_at(0), "every stream has its first value")
        server.signal(signal.SIGTERM)
        crowd.read_until(lambda: len(crowd.ended) == many, "every stream has ended")
    assert server.wait_exit() == 0
    assert "drained in" in server.output.read_text()


@contextlib.contextmanager
def slow_reader(server):
    """The client of a stream, with little room for what it does not read."""
    with dial(server.port, receive_buffer=4096) as slow:
        slow.sendall(render("GET", "/streams/a"))
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
    with server.follow("a") as stream:
        stream.next()
        assert [stream.read_line() for _ in range(4)] == [b": keep-alive\n", b"\n"] * 2
    wait_until(lambda: server.metric("quipu_http_connections") == 1, "only the one that asks is left")

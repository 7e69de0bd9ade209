"""Event streams over HTTP/2: many badges over one connection, next to requests. Limits count streams."""

import json
import re
import signal

import hyperframe.frame as frames
import pytest

from harness.http2 import CANCEL, INITIAL_WINDOW, LARGEST_WINDOW, NO_ERROR, Http2, Reset
from harness.keys import KeyFile
from harness.unread import new_user
from harness.waiting import wait_until

EVENT = re.compile(rb"id: (\d+)\ndata: ([^\n]*)\n\n")
ROLES = ["--roles", "counts,dialogs,counters"]


def path(user):
    return f"/counters/user/{user}/stream"


def events(connection, stream):
    """The values that have come on a stream so far: [(id, count)]."""
    body = connection.streams.get(stream, [0, b""])[1]
    return [(int(version), json.loads(data)["count"]) for version, data in EVENT.findall(body)]


def follow(connection, user):
    """Opens a stream and waits for its first value. Returns its number."""
    stream = connection.request("GET", path(user))
    connection.read_until(lambda: events(connection, stream))
    return stream


@pytest.fixture
def server(serve, sqlite_store):
    return serve(sqlite_store, *ROLES)


def test_one_connection_follows_many_badges_and_still_asks(server, unread_client):
    unread, sender = unread_client(server), new_user()
    users = [new_user() for _ in range(30)]
    with Http2(server.port) as connection:
        streams = {user: follow(connection, user) for user in users}
        assert server.metric("quipu_http_streams") == len(users)
        assert server.metrics()["quipu_http2_connections"] == 1
        for user in users:
            unread.sent(sender, user)
        for user, stream in streams.items():
            connection.read_until(lambda: events(connection, stream)[-1][1] == 1)
            assert connection.ask("GET", f"/counters/user/{user}").json()[0]["count"] == 1
        headers = dict(connection.streams[streams[users[0]]][0])
        assert headers["content-type"] == "text/event-stream" and headers["cache-control"] == "no-store"


def test_a_stream_that_the_client_resets_is_forgotten_alone(server, unread_client):
    unread, alice, bob = unread_client(server), new_user(), new_user()
    with Http2(server.port) as connection:
        ended, kept = follow(connection, alice), follow(connection, bob)
        connection.send(frames.RstStreamFrame(ended, CANCEL))
        wait_until(lambda: server.metric("quipu_http_streams") == 1, "one is forgotten")
        unread.sent(alice, bob)
        connection.read_until(lambda: events(connection, kept)[-1][1] == 1)
    wait_until(lambda: server.metric("quipu_http_streams") == 0, "both are forgotten")


def test_the_limit_counts_streams_not_connections(serve, sqlite_store):
    server = serve(sqlite_store, *ROLES, "--max-connections", 16)  # an eighth is reserved for requests
    with Http2(server.port) as connection:
        streams = [connection.request("GET", path(new_user())) for _ in range(20)]
        connection.read_until(lambda: all(connection.streams.get(stream, [None])[0] for stream in streams))
        statuses = [dict(connection.streams[stream][0])[":status"] for stream in streams]
        assert (statuses.count("200"), statuses.count("503")) == (14, 6)


def test_a_reader_without_a_window_skips_to_the_newest(server, unread_client):
    unread, alice, bob = unread_client(server), new_user(), new_user()
    with Http2(server.port, settings={INITIAL_WINDOW: 200}) as connection:
        stream = follow(connection, bob)
        while server.metric("quipu_http_stream_events_skipped_total") < 5:
            unread.sent(alice, bob)
        last = unread.count(bob)
        connection.open_window(100000, stream)
        connection.read_until(lambda: events(connection, stream)[-1][1] == last)
        counts = [count for _, count in events(connection, stream)]
        assert counts == sorted(set(counts)) and len(counts) < last


def test_a_reader_that_stalls_loses_its_stream_alone(serve, sqlite_store, unread_client):
    server = serve(sqlite_store, *ROLES, "--stream-stall", "500ms")
    unread, bob = unread_client(server), new_user()
    with Http2(server.port, settings={INITIAL_WINDOW: 0}) as connection:
        stream = connection.request("GET", path(bob))
        with pytest.raises(Reset) as stalled:
            connection.answer(stream)
        assert stalled.value.code == CANCEL
        assert unread.count(bob) == 0
        connection.send(frames.SettingsFrame(0, settings={INITIAL_WINDOW: 65535}))
        assert connection.ask("GET", "/healthz").status == 200


@pytest.fixture
def guarded(serve, sqlite_store, binary, tmp_path):
    """A server with two keys. Nothing times out there."""
    keys = KeyFile(binary, tmp_path / "keys")
    kept, dropped = keys.new("kept", "internal"), keys.new("dropped", "internal")
    server = serve(sqlite_store, *ROLES, "--api-keys", keys.path, "--stream-stall", "1h", "--idle-timeout", "1h")

    def drop():
        keys.drop(dropped)
        keys.reload(server)

    return server, kept, dropped, drop


def streams_of(server, key):
    return server.metrics(key.headers)["quipu_http_streams"]


def begin(connection, key):
    stream = connection.request("GET", path(new_user()), headers=[("authorization", f"Bearer {key.shown}")])
    connection.read_until(lambda: connection.streams.get(stream, [None])[0])
    return stream


def test_a_stream_whose_key_is_removed_ends_although_it_has_no_window(guarded):
    server, kept, dropped, drop = guarded
    with Http2(server.port, settings={INITIAL_WINDOW: 10}) as connection:
        stream = begin(connection, dropped)
        assert streams_of(server, kept) == 1
        drop()
        wait_until(lambda: streams_of(server, kept) == 0, "the stream has ended")
        connection.open_window(100000, stream)
        connection.read_until(lambda: connection.streams[stream][2])
        assert len(events(connection, stream)) == 1  # which was being written


def test_a_stream_whose_key_is_removed_ends_although_its_connection_is_not_read(guarded):
    server, kept, dropped, drop = guarded
    with Http2(server.port, settings={INITIAL_WINDOW: LARGEST_WINDOW}, receive_buffer=4096) as connection:
        connection.open_window()
        begin(connection, dropped)
        heads = [connection.head("GET", "/openapi.json") for _ in range(60)]
        connection.send(*heads)
        wait_until(lambda: server.metrics(kept.headers)["quipu_http_requests_in_flight"] > 30, "answers that are not read")
        drop()
        wait_until(lambda: streams_of(server, kept) == 0, "the stream has ended")


def test_a_quiet_stream_sends_heartbeats(serve, sqlite_store):
    server = serve(sqlite_store, *ROLES, "--stream-heartbeat", "200ms")
    with Http2(server.port) as connection:
        streams = [follow(connection, new_user()) for _ in range(3)]
        connection.read_until(lambda: all(connection.streams[s][1].count(b": keep-alive\n\n") >= 2 for s in streams))


def test_sigterm_ends_every_stream_and_says_goaway(server):
    with Http2(server.port) as connection:
        streams = [follow(connection, new_user()) for _ in range(5)]
        server.signal(signal.SIGTERM)
        connection.read_until(lambda: all(connection.streams[stream][2] for stream in streams))
        assert connection.read_to_the_end() == NO_ERROR
    assert server.wait_exit() == 0

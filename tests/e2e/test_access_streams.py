"""How many event streams a user may hold: the oldest gives way to a new one, whatever its client does."""

import contextlib
import re

import pytest

from harness.access import metric, stream_of
from harness.http2 import CANCEL, INITIAL_WINDOW, Ended, Http2
from harness.streams import Crowd
from harness.tokens import bearer
from harness.unread import Follower
from harness.waiting import wait_until

EVENT = re.compile(rb"id: (\d+)\ndata: [^\n]*\n\n")


def crowd_of(place, users):
    """Streams with the token of each of these users, in their order: each begins after the one before it."""
    return Crowd(place.server.port, [stream_of(user.name, user.token) for user in users], EVENT)


def test_the_oldest_stream_of_a_user_gives_way_to_a_new_one(open_place):
    place = open_place("ES256", "--streams-per-user", 3, "--stream-heartbeat", "1h")
    alice, bob = place.user(), place.user()
    with crowd_of(place, [bob] * 2) as bobs, crowd_of(place, [alice] * 3) as first:
        first.read_until(lambda: len(first.version) == 3, "alice has as many as she may")
        bobs.read_until(lambda: len(bobs.version) == 2, "bob has his")
        with crowd_of(place, [alice]) as second:
            second.read_until(lambda: len(second.version) == 1, "a new stream begins")
            first.read_until(lambda: len(first.ended) == 1, "the oldest has ended")
            place.unread.send(None, alice.name, headers=bearer(bob.token))
            second.read_until(lambda: all(second.version.values()), "the new stream hears of it")
            first.read_until(lambda: sum(version > 0 for version in first.version.values()) == 2, "so do two others")
        assert len(first.ended) == 1 and not bobs.ended


def test_one_user_cannot_hold_every_stream(open_place):
    """Many at once, before any of them has begun: all but the last of them end again."""
    place = open_place("ES256", "--streams-per-user", 4, "--max-connections", 80, "--stream-heartbeat", "1h")
    alice, bob = place.user(), place.user()
    with crowd_of(place, [alice] * 60) as crowd:
        crowd.read_until(lambda: len(crowd.ended) == 56, "all but four have ended")
        wait_until(lambda: metric(place, "quipu_http_streams") == 4, "the streams that are left")
        with crowd_of(place, [bob]) as other:
            other.read_until(lambda: len(other.version) == 1, "another user's stream begins")
        assert len(crowd.ended) == 56


def begin_over_http2(connection, user):
    """Requests a stream and waits for the head of the answer. Returns the number of the stream, and its status."""
    stream = connection.request("GET", stream_of(user.name, user.token))
    connection.read_until(lambda: connection.streams.get(stream, [None])[0])
    return stream, int(dict(connection.streams[stream][0])[":status"])


def test_one_user_cannot_hold_every_stream_by_not_reading(open_place):
    """Over HTTP/2, a stream that gives way cannot end before its client opens a window."""
    place = open_place("ES256", "--streams-per-user", 4, "--max-connections", 80, "--stream-heartbeat", "1h",
                       "--stream-stall", "1h")
    alice, bob = place.user(), place.user()
    with Http2(place.server.port, settings={INITIAL_WINDOW: 0}) as greedy, Http2(place.server.port) as other:
        assert {begin_over_http2(greedy, alice)[1] for _ in range(200)} == {200}
        wait_until(lambda: metric(place, "quipu_http_streams") == 4, "the streams that have not given way")
        stream, status = begin_over_http2(other, bob)
        assert status == 200
        other.read_until(lambda: EVENT.search(other.streams[stream][1]))


def test_a_stream_that_gives_way_is_reset_however_slowly_its_client_reads(open_place):
    place = open_place("ES256", "--streams-per-user", 1, "--stream-heartbeat", "100ms", "--stream-stall", "2s")
    alice = place.user()
    with Http2(place.server.port, settings={INITIAL_WINDOW: 0}) as connection:
        oldest, newest = (begin_over_http2(connection, alice)[0] for _ in range(2))
        connection.open_window(100000, newest)
        heard = 0
        while oldest not in connection.resets and not connection.streams[oldest][2]:
            connection.read_until(lambda: connection.streams[newest][1].count(b": keep-alive") > heard or
                                  oldest in connection.resets)
            heard = connection.streams[newest][1].count(b": keep-alive")
            connection.open_window(1, oldest)
        assert connection.resets.get(oldest) == CANCEL, "it was read to its end, byte by byte"
        assert newest not in connection.resets


def test_a_connection_whose_streams_have_all_given_way_makes_room(open_place):
    place = open_place("ES256", "--streams-per-user", 1, "--max-connections", 16, "--loops", 1,
                       "--stream-heartbeat", "1h", "--stream-stall", "1h", "--idle-timeout", "1h")
    alice = place.user()
    with contextlib.ExitStack() as stack:
        waits, follows = (stack.enter_context(Http2(place.server.port, settings={INITIAL_WINDOW: 0})) for _ in range(2))
        for connection in (waits, follows):
            assert begin_over_http2(connection, alice)[1] == 200
        follows.ping()  # the loop has ended the other stream before it reads this
        for _ in range(16):
            visitor = stack.enter_context(Http2(place.server.port))
            assert visitor.ask("GET", "/healthz").status == 200
        with pytest.raises((Ended, OSError)):
            waits.ping()
        follows.ping()


def test_a_key_that_follows_many_users_has_only_the_limit_of_the_process(open_place):
    place = open_place("ES256", "--streams-per-user", 2, "--stream-heartbeat", "1h")
    followers = [Follower(place.server.port, stream_of("bob"), bearer(place.internal_key)) for _ in range(6)]
    with contextlib.ExitStack() as stack:
        for follower in followers:
            stack.enter_context(follower)
        assert [follower.next()[1]["count"] for follower in followers] == [0] * 6
        assert metric(place, "quipu_http_streams") == 6

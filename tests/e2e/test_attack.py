"""What attackers can do to others: nothing. Good clients are served, memory stays bounded, and it passes.

Nobody measures how fast that is, because the attackers' process has the same cores. What would keep attackers for a
while (a timeout) is set to an hour: had a good client to wait for them, it would be found hanging, and where the attack
does not end by itself it is seen to be still there after everybody else was served.
"""

import os
import pathlib
import resource
import tempfile

import pytest

from harness.attack import CLOSED, MEASURABLE, Attack, Guests, Peak
from harness.counts import action, increase_request
from harness.http import render
from harness.problems import assert_problem
from harness.stores import SqliteStore
from harness.waiting import wait_until

MIB = 1024  # KiB
# What an allocator, a sanitizer's most of all, takes beyond what it is asked for; and pools that stay.
FACTOR = 3
ALLOWANCE = 48 * MIB
TURN = 32 * 1024  # what a client is sent before the others have their turn, but for the answer that passes it
HALF_HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
ENDLESS_CHUNKS = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
GET = render("GET", "/healthz")


def sizes(small, large):
    """Of an attack: a small one in make test, the large one in make test-full."""
    return pytest.mark.parametrize("size", [small, pytest.param(large, marks=pytest.mark.full)])


@pytest.fixture(autouse=True)
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def memory_store():
    """In memory where there is such a folder: how long a disk takes to sync is not what is measured here."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        yield SqliteStore(pathlib.Path(directory) / "data")


def body_head(item, length):
    """The head of an increase whose body is still to come."""
    return render("POST", action(item, "increase"), headers={"Content-Length": length, "Content-Type": "application/json"})


def chunked_head(item):
    return render("POST", action(item, "increase"), headers={"Transfer-Encoding": "chunked"})


class Stage:
    """A server with its good clients, and the promise about both."""

    def __init__(self, server, counts):
        self.server = server
        self.counts = counts
        self.guests = Guests(server, counts)
        self.guests.are_served(5)
        self.before_kib = server.resident_kib()

    def check_service(self, rounds=20, **options):
        """Good clients are served, those that have been there before and new ones."""
        self.guests.are_served(rounds, **options)

    def check_memory(self, peak_kib, bytes_allowed):
        grown = peak_kib - self.before_kib
        allowed = FACTOR * bytes_allowed / 1024 + ALLOWANCE
        print(f"memory grew by {grown / MIB:.1f} MiB from {self.before_kib / MIB:.1f}, allowed are {allowed / MIB:.1f}")
        assert grown < allowed

    def check_afterwards(self):
        self.guests.close()
        self.counts.close()
        wait_until(lambda: self.server.metric("quipu_http_connections") == 1, "only this look at the metrics is left")
        assert self.server.metric("quipu_http_requests_in_flight") == 1
        wait_until(lambda: self._kib_after_a_request() - self.before_kib < ALLOWANCE, "memory is given back")

    def _kib_after_a_request(self):
        self.server.ask("GET", "/openapi.json")  # allocators tidy up when they are used
        return self.server.resident_kib()


@pytest.fixture
def stage(serve, client, memory_store):
    """Starts a server and its good clients; afterwards everything must be as before."""
    stages = []

    def start(*arguments):
        server = serve(memory_store, *arguments, env=MEASURABLE)
        stages.append(Stage(server, client(server)))
        return stages[-1]

    yield start
    for one in stages:
        one.check_afterwards()


# ---- slow ones

SLOW = {"head": "--head-timeout", "body": "--body-timeout", "empty lines": "--idle-timeout"}


def slow_attack(here, kind, size):
    """A byte at a time. Empty lines may stand before a request, and are none."""
    if kind == "empty lines":
        return Attack(here.server, size, again=b"\r\n", pause=0.2)
    first = HALF_HEAD if kind == "head" else body_head(here.counts.new_item(), 60000)
    return Attack(here.server, size, first=first, again=b"x", pause=0.2)


@sizes(200, 2000)
@pytest.mark.parametrize("kind", SLOW)
def test_nobody_waits_for_slow_clients(stage, kind, size):
    here = stage(SLOW[kind], "1h")
    with slow_attack(here, kind, size) as attack:
        here.check_service()
        assert attack.open == size


@sizes(200, 2000)
@pytest.mark.parametrize("kind", SLOW)
def test_slow_clients_are_cut_off(stage, kind, size):
    here = stage(SLOW[kind], "3s")  # long enough for good ones that wait for a core
    with slow_attack(here, kind, size) as attack:
        wait_until(lambda: attack.open == 0, "every slow client is cut off")
    assert attack.statuses[408] == (0 if kind == "empty lines" else size)


@sizes(200, 2000)
def test_bodies_that_stop_short_of_their_end_take_no_more_than_their_share(stage, size):
    """Together they would be seven times their share; the oldest make room for the newest before their time is over."""
    share = size * 8192
    here = stage("--client-bytes", share, "--body-timeout", "1h")
    head = body_head(here.counts.new_item(), 60000)
    with Peak(here.server) as peak, Attack(here.server, size, first=head + b"x" * 59000):
        here.check_service()
        wait_until(lambda: here.server.metric("quipu_http_connections") < size, "some made room")
    here.check_memory(peak.kib, share)


# ---- many


@sizes(1000, 10000)
def test_idle_connections(stage, size):
    here = stage("--idle-timeout", "1h")
    with Peak(here.server) as peak, Attack(here.server, size) as attack:
        here.check_service()
        assert attack.open == size
        assert here.server.metric("quipu_http_connections") >= size
    here.check_memory(peak.kib, size * 2048)


@sizes(50, 500)
@pytest.mark.parametrize("sent", [b"", HALF_HEAD, GET], ids=["silent", "half a head", "one request"])
def test_a_full_table_makes_room_for_who_comes(stage, sent, size):
    """Attackers come back as often as they are closed, and still everybody else gets in at once.

    For each request of a guest a third of a table of them, when the last third is settled: a guest who has connected
    and was not given a core to send its request on would else be idle for longer than all attackers on its loop.
    """
    here = stage("--max-connections", size, "--head-timeout", "1h", "--idle-timeout", "1h")
    with Attack(here.server, size * 7 // 5, first=sent, returns=True, wave=size // 3) as attack:
        here.check_service(before_each=attack.next_wave)
        wait_until(lambda: here.server.metric("quipu_http_connections") <= size, "the last wave is settled")


def test_the_connection_that_is_idle_longest_makes_room(serve, sqlite_store):
    server = serve(sqlite_store, "--max-connections", "3", "--loops", "1", "--idle-timeout", "1h")
    wait_until(lambda: server.metric("quipu_http_connections") == 1, "only this look at the metrics is connected")
    oldest, middle, newest = [server.connect() for _ in range(3)]
    for connection in (oldest, middle, newest, oldest):
        assert connection.ask("GET", "/healthz").status == 200
    with server.connect() as one_more:
        assert one_more.ask("GET", "/healthz").status == 200
        middle.assert_closed()
        for connection in (oldest, newest, one_more):
            assert connection.ask("GET", "/healthz").status == 200
    for connection in (oldest, middle, newest):
        connection.close()


STREAMS = ["--roles", "counts,dialogs,counters", "--stream-stall", "1h"]


@sizes(80, 800)
def test_streams_that_are_opened_and_left_keep_nobody_out(serve, client, memory_store, size):
    server, streams = serve(memory_store, *STREAMS, "--max-connections", size, env=MEASURABLE), size * 7 // 8
    here = Stage(server, client(server))
    follow = render("GET", "/counters/user/u/stream")
    with Attack(server, streams, first=follow, reads=False):
        wait_until(lambda: server.metric("quipu_http_streams") == streams, "streams have all that streams may have")
        with Attack(server, size // 4, first=follow) as refused:
            wait_until(lambda: refused.answers(503) == size // 4, "every further stream is refused")
            here.check_service()
        assert server.metric("quipu_http_streams") == streams
        assert_problem(server.ask("GET", "/counters/user/u/stream"), 503, "OVERLOADED")
    here.check_afterwards()


@sizes(160, 800)
def test_a_burst_of_streams_does_not_take_what_is_kept_from_streams(serve, client, memory_store, size):
    """All of them ask before any of them has begun."""
    server, streams = serve(memory_store, *STREAMS, "--max-connections", size, env=MEASURABLE), size * 7 // 8
    here = Stage(server, client(server))
    with Attack(server, size - 10, first=render("GET", "/counters/user/u/stream"), reads=False):
        wait_until(lambda: server.metric("quipu_http_streams") == streams, "streams have all that streams may have")
        here.check_service()
        assert server.metric("quipu_http_streams") == streams
    here.check_afterwards()


def test_streams_whose_clients_do_not_read_give_way_to_who_sends(serve, client, memory_store):
    """What they do not read fills --client-bytes; a request in two pieces is not closed for it."""
    server = serve(memory_store, *STREAMS, "--client-bytes", "8388608", "--head-timeout", "1h", env=MEASURABLE)
    here = Stage(server, client(server))
    unread = 5 * render("GET", "/openapi.json") + render("GET", "/counters/user/u/stream")
    with Attack(server, 80, first=unread, reads=False):
        wait_until(lambda: server.metrics()['quipu_http_connections_ended_total{for="memory"}'] > 0, "some gave way")
        for _ in range(10):
            with server.connect() as guest:
                guest.send(GET[:20])
                here.check_service(rounds=1)
                guest.send(GET[20:])
                assert guest.read_answer().status == 200


# ---- much


@pytest.mark.parametrize("kind", ["a length of a petabyte", "endless chunks"])
def test_endless_bodies_are_refused_and_not_kept(stage, kind):
    here = stage()
    item = here.counts.new_item()
    first = body_head(item, 10**15) if kind.startswith("a length") else chunked_head(item)
    again = b"x" * 65536 if kind.startswith("a length") else ENDLESS_CHUNKS
    with Peak(here.server) as peak, Attack(here.server, 100, first=first, again=again, returns=True) as attack:
        here.check_service()
        wait_until(lambda: attack.answers(413) >= 100, "each was refused")
    here.check_memory(peak.kib, 100 * 2 * 65536)


@pytest.mark.parametrize("reads", [True, False], ids=["reads its answers", "reads nothing"])
def test_pipelined_floods(stage, reads):
    share = 16 << 20
    here = stage("--client-bytes", share)
    with Peak(here.server) as peak, Attack(here.server, 40, again=GET * 200, reads=reads) as attack:
        here.check_service(rounds=5)
        wait_until(lambda: not reads or attack.answers(200) > 1000, "a thousand answers")
    here.check_memory(peak.kib, share)


def test_answers_that_nobody_reads_take_no_more_than_their_share(stage):
    share = 4 << 20
    here = stage("--client-bytes", share)
    page = render("GET", "/openapi.json")
    with Peak(here.server) as peak, Attack(here.server, 400, again=page * 50, reads=False) as attack:
        here.check_service()
        wait_until(lambda: attack.open < 400, "some are closed")
    one_answer = len(here.server.ask("GET", "/openapi.json").body)
    here.check_memory(peak.kib, share + 400 * (TURN + one_answer))


HEAD_BOMBS = {
    "many headers": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a: b\r\n" * 5000,
    "a long header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\na: " + b"x" * 100000,
    "a long target": b"GET /" + b"x" * 200000,
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 100,
}


@pytest.mark.parametrize("bomb", HEAD_BOMBS, ids=list(HEAD_BOMBS))
def test_head_bombs_are_refused(stage, bomb):
    here = stage()
    with Peak(here.server) as peak, Attack(here.server, 200, first=HEAD_BOMBS[bomb], returns=True) as attack:
        here.check_service()
        wait_until(lambda: attack.closed > 0, "some are closed")
    assert set(attack.statuses) <= {400, 414, 431, CLOSED}
    here.check_memory(peak.kib, 200 * 200000)


# ---- one key


def test_a_flooded_item_leaves_the_lane_to_others(stage):
    """Far more clients want one item than the only write lane has places: the others do not feel it."""
    here = stage("--lanes", "1", "--lane-depth", "32", "--batch-max", "8")
    item = here.counts.new_item()
    with Attack(here.server, 300, again=increase_request(item)) as attack:
        here.check_service()
        wait_until(lambda: attack.answers(200) > 1000 and attack.answers(503) > 0, "more than there is room for")
    assert set(attack.statuses) == {200, 503}
    assert here.counts.value(item) >= attack.statuses[200]

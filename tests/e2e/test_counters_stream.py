"""Event streams of counters: the value at once, every change in order, from whichever process it comes."""

import datetime
import re
import signal

import pytest

from harness.problems import assert_problem
from harness.rabbitmq import Host
from harness.streams import Crowd, room_for
from harness.unread import Follower, PostgresUnread, new_user
from harness.waiting import HANG_S, wait_until

# How many streams at once.
CROWD = [1000, pytest.param(5000, marks=pytest.mark.full)]
KIB_PER_STREAM = 32
# AddressSanitizer keeps 256 MB of what was freed: far more than all streams take
LITTLE_QUARANTINE = {"ASAN_OPTIONS": "detect_leaks=1:exitcode=99:quarantine_size_mb=4"}
# A stream hears of a change by an announcement, or by a look at the store every few seconds: here by the first alone.
NO_LOOKS = {"QUIPU_FAILPOINTS": "counters.look=off"}
EVENT = re.compile(rb'id: (\d+)\ndata: [^\n]*"count":(\d+)[^\n]*\n\n')


def test_the_value_comes_at_once_and_changes_follow_in_order(unread):
    alice, bob = new_user(), new_user()
    with unread.follow(bob) as stream:
        assert stream.next() == (0, {"userId": bob, "type": "UnreadMessages", "count": 0, "lastUpdated": None})
        messages = [unread.sent(alice, bob)]
        first, counter = stream.next()
        assert (first, counter["count"]) == (created_ms(counter), 1)
        for number in range(1, 5):
            messages.append(unread.sent(alice, bob))
            version, counter = stream.next()
            assert (version, counter["count"]) == (first + number, 1 + number)
        unread.read_batch(bob, messages)
        versions = stream.until(0)
        assert versions[-1] > first + 4
        assert unread.count(bob) == 0
        with unread.follow(bob) as late:
            version, counter = late.next()
            assert (version, counter["count"]) == (versions[-1], 0)


def created_ms(counter):
    """The first version of a counter, from its value when it was created."""
    updated = datetime.datetime.fromisoformat(counter["lastUpdated"].replace("Z", "+00:00"))
    return (updated - datetime.datetime.fromtimestamp(0, datetime.timezone.utc)) // datetime.timedelta(milliseconds=1)


def test_the_other_path_is_the_same_stream(unread):
    user = new_user()
    with unread.follow(user) as stream, unread.follow(user, prefix="/api/v1") as other:
        assert stream.next() == other.next()
        unread.sent(new_user(), user)
        assert stream.next() == other.next()


def test_last_event_id_leaves_out_what_the_client_knows(unread):
    alice, bob = new_user(), new_user()
    for _ in range(3):
        unread.sent(alice, bob)
    unread.wait_count(bob, 3)
    with unread.follow(bob) as stream:
        known = stream.until(3)[-1]
    with unread.follow(bob, **{"Last-Event-ID": str(known - 1)}) as stream:
        assert stream.next()[0] == known
    with unread.follow(bob, **{"Last-Event-ID": str(known)}) as stream:
        unread.sent(alice, bob)
        version, counter = stream.next()
        assert (version, counter["count"]) == (known + 1, 4)


def test_polyfills_may_send_the_last_id_in_the_query(unread):
    bob = new_user()
    unread.sent(new_user(), bob)
    unread.wait_count(bob, 1)
    known = unread_version(unread, bob)
    with Follower(unread.port, f"/counters/user/{bob}/stream?lastEventId={known}", {}) as stream:
        unread.sent(new_user(), bob)
        version, counter = stream.next()
        assert (version, counter["count"]) == (known + 1, 2)
    with Follower(unread.port, f"/counters/user/{bob}/stream?lastEventId={known + 1}", {"Last-Event-ID": "0"}) as stream:
        assert stream.next()[0] == known + 1


def test_many_changes_end_at_the_last_value_and_versions_only_grow(unread):
    alice, bob = new_user(), new_user()
    with unread.follow(bob) as first, unread.follow(bob) as second:
        messages = [unread.sent(alice, bob) for _ in range(60)]
        assert unread.read_batch(bob, messages[:45]).json()["updated"] == 45
        unread.wait_count(bob, 15)
        goal = unread_version(unread, bob)
        for stream in (first, second):
            assert last_of(stream, goal)["count"] == 15


def unread_version(unread, user):
    with unread.follow(user) as stream:
        return stream.next()[0]


def last_of(stream, version):
    """Reads up to a version, of which each is greater than the one before."""
    before = -1
    while True:
        current, counter = stream.next()
        assert current > before, "a version went back"
        before = current
        if current >= version:
            return counter


def test_a_change_of_another_process_arrives(serve, unread_client, full_unread):
    """Two processes, of which RabbitMQ gives each event to one: both tell it to everybody who follows there."""
    dialogs = unread_client(serve(full_unread.play("dialogs")))
    both = [unread_client(serve(full_unread.play("counters"), env=NO_LOOKS)) for _ in range(2)]
    bob = new_user()
    with both[0].follow(bob) as one, both[1].follow(bob) as other:
        assert one.next()[0] == other.next()[0] == 0
        for number in range(10):
            dialogs.sent(new_user(), bob)
            shown = [stream.next() for stream in (one, other)]
            first = first if number else created_ms(shown[0][1])
            for version, counter in shown:
                assert (version, counter["count"]) == (first + number, 1 + number)


def test_a_change_is_announced_through_redis_too(serve, unread_client, own_redis_unread, own_redis):
    """Seen from outside: who changes a counter says so, and what others say is looked up."""
    server = serve(own_redis_unread, env=NO_LOOKS)
    server.wait_all_up()
    unread = unread_client(server)
    bob = new_user()
    with own_redis.client() as client, client.pubsub() as heard, unread.follow(bob) as stream:
        heard.subscribe("quipu:0")
        assert heard.get_message(timeout=HANG_S)["type"] == "subscribe"
        assert stream.next()[0] == 0
        unread.sent(new_user(), bob)
        assert stream.next()[1]["count"] == 1
        message = heard.get_message(timeout=HANG_S)
        assert re.fullmatch(r"[0-9a-f-]{36} counters", message["data"]), message
        own_redis_unread.database.query(
            "UPDATE counters SET count = 7, version = version + 1 WHERE user_id = %s RETURNING 1", [bob])
        assert client.publish("quipu:0", "another counters") == 2
        assert stream.next()[1]["count"] == 7


def test_a_stream_survives_that_redis_and_rabbitmq_know_nothing(serve, unread_client, own_redis_unread, own_redis):
    unread = unread_client(serve(own_redis_unread))
    bob = new_user()
    with unread.follow(bob) as stream:
        stream.next()
        unread.sent(new_user(), bob)
        assert stream.next()[1]["count"] == 1
        own_redis.do("FLUSHALL")
        unread.sent(new_user(), bob)
        assert stream.next()[1]["count"] == 2


def test_sigterm_ends_every_stream_and_clients_go_on_elsewhere(serve, unread_client, full_unread):
    servers = [serve(full_unread) for _ in range(2)]
    first, second = (unread_client(server) for server in servers)
    bob = new_user()
    first.sent(new_user(), bob)
    with first.follow(bob) as stream:
        version = stream.until(1)[-1]
        servers[0].signal(signal.SIGTERM)
        assert stream.next() is None
    assert servers[0].wait_exit() == 0
    second.sent(new_user(), bob)
    with second.follow(bob, **{"Last-Event-ID": str(version)}) as stream:
        assert stream.until(2)


def test_a_stream_on_a_store_that_is_away_is_a_503(
    serve, unread_client, own_postgres, rabbitmq_server, redis_server, tmp_path
):
    stack = PostgresUnread(tmp_path, own_postgres.create_database(), Host.new(rabbitmq_server), redis_server)
    server = serve(stack)
    own_postgres.stop("immediate")
    user = new_user()
    wait_until(lambda: not server.ready(), "/readyz says that the store is away")
    assert_problem(unread_client(server).ask("GET", f"/counters/user/{user}/stream"), 503, "STORE_UNAVAILABLE")
    own_postgres.start()
    server.wait_ready()
    with unread_client(server).follow(user) as stream:
        assert stream.next()[0] == 0


# ---- thousands


@pytest.fixture(params=CROWD)
def many(request):
    with room_for(request.param) as count:
        yield count


def test_many_streams_are_small_and_all_get_the_last_value(serve, unread_client, unread_stack, many):
    server = serve(unread_stack, env=LITTLE_QUARANTINE)
    unread = unread_client(server)
    crowded = new_user()
    users = [crowded if number % 2 else new_user() for number in range(many)]
    unread.sent(new_user(), new_user())
    with unread.follow(new_user()) as warm:
        warm.next()
        empty_kib = server.resident_kib()
    with Crowd(server.port, [f"/counters/user/{user}/stream" for user in users], EVENT) as crowd:
        crowd.read_until(lambda: crowd.all_at(0), "every stream has its first value")
        each_kib = (server.resident_kib() - empty_kib) / many
        print(f"{each_kib:.2f} KiB a stream, {many} streams")
        assert each_kib < KIB_PER_STREAM
        assert server.metric("quipu_http_streams") == many
        messages = {}
        for user in dict.fromkeys(users[:100]):
            messages[user] = [unread.sent(new_user(), user) for _ in range(2)]
        for user, ids in messages.items():
            assert unread.read(user, ids[0]).json()["updated"] == 1
        unread_stack.wait_agreement()
        versions = dict(unread_stack.counters_query("SELECT user_id, version FROM counters"))
        newest = [(client, versions[user]) for client, user in zip(crowd.sockets, users) if user in messages]
        assert len(newest) > many / 2
        crowd.read_until(lambda: all(crowd.version[client] == version for client, version in newest),
                         "every stream has the last value")
        assert all(crowd.value[client] == 1 for client, _ in newest)
        assert not crowd.ended
        each_kib = (server.resident_kib() - empty_kib) / many
        print(f"{each_kib:.2f} KiB a stream after its changes")
        assert each_kib < KIB_PER_STREAM
        server.signal(signal.SIGTERM)
        crowd.read_until(lambda: len(crowd.ended) == many, "every stream has ended")
    assert server.wait_exit() == 0

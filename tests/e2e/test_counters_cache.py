"""The stale-cache race: a reader that has loaded an old value must not bring it back after a writer's newer one."""

import signal

import pytest

from harness.http import render
from harness.rabbitmq import NEW_KEY, READ_QUEUE
from harness.redis import Redis, Unavailable
from harness.unread import PostgresUnread, counter_key, list_key, new_message, new_user
from harness.waiting import wait_until


@pytest.fixture(scope="module")
def redis():
    """Of this file: its tests flush it."""
    try:
        server = Redis()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="module")
def stack(postgres_server, rabbitmq_server, redis, tmp_path_factory):
    fresh = postgres_server.create_database()
    yield PostgresUnread(tmp_path_factory.mktemp("unread"), fresh, rabbitmq_server.new_host(), redis)
    fresh.drop()


@pytest.fixture(scope="module")
def module_writer(stack, module_serve):
    return serve_counters(module_serve, stack)


@pytest.fixture
def writer(module_writer):
    """A process of counters that all tests share, each with users of its own."""
    yield module_writer
    module_writer.check_alive()


@pytest.fixture
def counters(writer, unread_client):
    return unread_client(writer)


def serve_counters(serve, stack, **options):
    server = serve(stack.play("counters"), **options)
    wait_until(lambda: b'"engine":"redis","status":"up"' in server.ask("GET", "/readyz").body, "Redis is in use")
    wait_until(lambda: stack.host.depth(READ_QUEUE) is not None, "the queues are declared")
    return server


AFTERWARDS = {
    "key present": lambda redis, user: None,
    "key deleted": lambda redis, user: redis.do("DEL", counter_key(user), list_key(user)),
    "key expired": lambda redis, user: redis.do("PEXPIRE", counter_key(user), 1),
}


def expire(redis, user):
    wait_until(lambda: redis.do("EXISTS", counter_key(user)) == 0, "the key has ended")


@pytest.mark.parametrize("target", ["/UnreadMessages", ""], ids=["counter", "list"])
@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_a_reader_that_was_overtaken_never_stores_what_it_has_loaded(
    serve, unread_client, stack, counters, redis, afterwards, target
):
    user = new_user()
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    counters.wait_count(user, 1)
    redis.do("FLUSHALL")
    reader = serve_counters(serve, stack, env={"QUIPU_FAILPOINTS": "counters.filling=stop"})
    with reader.connect() as connection:
        connection.send(render("GET", f"/counters/user/{user}{target}"))
        wait_until(reader.stopped, "the reader stops with the old value in its hands")
        assert stack.cached(user) is None
        sent = publish_until_counted(stack, redis, user)
        assert counters.count(user) > 1  # another reader fills the cache
        newest = stack.cached(user)
        AFTERWARDS[afterwards](redis, user)
        if afterwards == "key expired":
            expire(redis, user)
        reader.signal(signal.SIGCONT)
        answer = connection.read_answer()
    assert answer.status == 200
    # what it was asked before the change it may answer as of then; what stays in the cache it may not
    cached = stack.cached(user)
    assert cached is None or cached["version"] >= newest["version"]
    for client in (counters, unread_client(reader)):
        client.wait_count(user, sent)
        assert client.counters(user).json()[0]["count"] == sent
    assert stack.counted()[user] == sent


def publish_until_counted(stack, redis, user):
    """Returns how many there are in all. The reader's process is a member of the queues too: what RabbitMQ has given to it
    waits until it goes on, so it takes some until the writer has got one, and has deleted the reader's lease."""
    sent = 1

    def published():
        nonlocal sent
        sent += 1
        stack.host.publish((NEW_KEY, new_message(user, f"m{sent}")))
        return stack.counted()[user] > 1 and redis.do("EXISTS", counter_key(user) + ":lease") == 0

    wait_until(published, "the writer has committed and refreshed")
    return sent


def test_a_lease_that_ended_is_worth_nothing(serve, stack, counters, redis):
    """Another reader fills meanwhile; what the first one brings is not written, whatever it is."""
    user = new_user()
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    counters.wait_count(user, 1)
    redis.do("FLUSHALL")
    reader = serve_counters(serve, stack, env={"QUIPU_FAILPOINTS": "counters.filling=stop"})
    with reader.connect() as connection:
        connection.send(render("GET", f"/counters/user/{user}/UnreadMessages"))
        wait_until(reader.stopped, "the reader stops")
        assert 0 < redis.do("PTTL", f"{counter_key(user)}:lease") <= 10_000
        redis.do("EXPIRE", f"{counter_key(user)}:lease", 3600)  # it ends when the test says so
        assert counters.count(user) == 1
        assert stack.cached(user) is None  # the lease is another's
        redis.do("DEL", f"{counter_key(user)}:lease")  # as if its 10 s were over
        stack.database.query("UPDATE counters SET count = 5, version = 9 WHERE user_id = %s", (user,))
        assert counters.count(user) == 5
        assert stack.cached(user)["version"] == 9
        reader.signal(signal.SIGCONT)
        assert connection.read_answer().json()["count"] == 1
    assert (stack.cached(user)["count"], stack.cached(user)["version"]) == (5, 9)


def test_what_could_not_be_told_to_redis_is_made_up_for_before_it_is_used_again(
    stack, writer, counters, redis
):
    user = new_user()
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    counters.wait_count(user, 1)
    with redis.paused():
        stack.host.publish((NEW_KEY, new_message(user, "m2")))
        wait_until(lambda: stack.counted()[user] == 2, "it is counted without the cache")
    wait_until(lambda: b'"engine":"redis","status":"up"' in writer.ask("GET", "/readyz").body, "Redis is in use")
    assert counters.count(user) == 2
    counters.wait_count(user, 2)
    assert stack.cached(user)["count"] == 2


@pytest.mark.parametrize(
    "damage", ["x", "{}", '{"count":-1,"version":1,"lastUpdated":0}', '{"count":"many","version":1}', "[]"]
)
def test_what_is_damaged_in_redis_counts_as_none(stack, counters, redis, damage):
    user = new_user()
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    counters.wait_count(user, 1)
    redis.do("SET", counter_key(user), damage, "EX", 100)
    assert counters.count(user) == 1
    stack.host.publish((NEW_KEY, new_message(user, "m2")))
    counters.wait_count(user, 2)

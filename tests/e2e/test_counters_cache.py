"""The stale-cache race: a reader that has loaded an old value must not bring it back after a writer's newer one."""

import signal

import pytest

from harness.http import render
from harness.rabbitmq import NEW_KEY, READ_QUEUE
from harness.unread import counter_key, list_key, new_message, new_user
from harness.waiting import wait_until


def serve_counters(serve, stack, **options):
    server = serve(stack.play("counters"), **options)
    wait_in_use(server, stack)
    return server


def wait_in_use(server, stack):
    wait_until(lambda: b'"engine":"redis","status":"up"' in server.ask("GET", "/readyz").body, "Redis is in use")
    wait_until(lambda: stack.host.depth(READ_QUEUE) is not None, "the queues are declared")


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
    serve, unread_client, own_redis_unread, own_redis, afterwards, target
):
    stack, user = own_redis_unread, new_user()
    writer = serve_counters(serve, stack)
    counters = unread_client(writer)
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    counters.wait_count(user, 1)
    own_redis.do("FLUSHALL")
    reader = serve_counters(serve, stack, env={"QUIPU_FAILPOINTS": "counters.filling=stop"})
    with reader.connect() as connection:
        connection.send(render("GET", f"/counters/user/{user}{target}"))
        wait_until(reader.stopped, "the reader stops with the old value in its hands")
        assert stack.cached(user) is None
        sent = publish_until_counted(stack, own_redis, user)
        assert counters.count(user) > 1  # another reader fills the cache
        newest = stack.cached(user)
        AFTERWARDS[afterwards](own_redis, user)
        if afterwards == "key expired":
            expire(own_redis, user)
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


def test_a_lease_that_ended_is_worth_nothing(serve, unread_client, own_redis_unread, own_redis):
    """Another reader fills meanwhile; what the first one brings is not written, whatever it is."""
    stack, user = own_redis_unread, new_user()
    writer = serve_counters(serve, stack)
    counters = unread_client(writer)
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    counters.wait_count(user, 1)
    own_redis.do("FLUSHALL")
    reader = serve_counters(serve, stack, env={"QUIPU_FAILPOINTS": "counters.filling=stop"})
    with reader.connect() as connection:
        connection.send(render("GET", f"/counters/user/{user}/UnreadMessages"))
        wait_until(reader.stopped, "the reader stops")
        assert 0 < own_redis.do("PTTL", f"{counter_key(user)}:lease") <= 10_000
        assert counters.count(user) == 1
        assert stack.cached(user) is None  # the lease is another's
        own_redis.do("DEL", f"{counter_key(user)}:lease")  # as if its 10 s were over
        stack.database.query("UPDATE counters SET count = 5, version = 9 WHERE user_id = %s", (user,))
        assert counters.count(user) == 5
        assert stack.cached(user)["version"] == 9
        reader.signal(signal.SIGCONT)
        assert connection.read_answer().json()["count"] == 1
    assert (stack.cached(user)["count"], stack.cached(user)["version"]) == (5, 9)


def test_that_a_user_has_no_counter_is_cached_too_until_the_first_message(
    serve, unread_client, own_redis_unread, own_redis
):
    stack, user = own_redis_unread, new_user()
    counters = unread_client(serve_counters(serve, stack))
    for _ in range(2):
        assert counters.counter(user).json()["lastUpdated"] is None and counters.counters(user).json() == []
    assert stack.cached(user)["version"] == 0
    stack.database.query("INSERT INTO counters (user_id, type, count, last_updated, version) "
                         "VALUES (%s, 'UnreadMessages', 7, now(), 1)", (user,))
    assert counters.count(user) == 0 and counters.counters(user).json() == []  # the store is not asked
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    counters.wait_count(user, 8)
    assert counters.counters(user).json()[0]["count"] == 8


def test_what_could_not_be_told_to_redis_is_made_up_for_before_it_is_used_again(
    serve, unread_client, own_redis_unread, own_redis
):
    stack, user = own_redis_unread, new_user()
    server = serve_counters(serve, stack)
    counters = unread_client(server)
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    counters.wait_count(user, 1)
    with own_redis.frozen():
        stack.host.publish((NEW_KEY, new_message(user, "m2")))
        wait_until(lambda: stack.counted()[user] == 2, "it is counted without the cache")
    wait_until(lambda: b'"engine":"redis","status":"up"' in server.ask("GET", "/readyz").body, "Redis is in use")
    assert counters.count(user) == 2
    counters.wait_count(user, 2)
    assert stack.cached(user)["count"] == 2


@pytest.mark.parametrize(
    "damage", ["x", "{}", '{"count":-1,"version":1,"lastUpdated":0}', '{"count":"many","version":1}', "[]"]
)
@pytest.mark.parametrize("module_unread", ["postgres-rabbitmq-redis"], indirect=True)
def test_what_is_damaged_in_redis_counts_as_none(unread, unread_server, module_unread, damage):
    stack, user = module_unread[1], new_user()
    wait_in_use(unread_server, stack)
    stack.host.publish((NEW_KEY, new_message(user, "m1")))
    unread.wait_count(user, 1)
    stack.redis.do("SET", counter_key(user), damage, "EX", 3600)
    assert unread.count(user) == 1
    stack.host.publish((NEW_KEY, new_message(user, "m2")))
    unread.wait_count(user, 2)

"""The Redis in front of the store: requirements 9, 10, 10.5 and 11, read with python3-redis."""

import signal

import pytest

from harness.counts import new_key
from harness.available import available
from harness.gateway import new_user, send_request
from harness.gateway_stacks import PostgresStack
from harness.http import ask_all, ask_at_once
from harness.redis import Redis, Tap, hash_key
from harness.waiting import wait_until

NEEDED = {"rateLimit", "currentCount", "windowStart"}


def wait_redis(server):
    """A process is ready without its cache, which would miss the first sends of these tests."""
    wait_until(lambda: b'"engine":"redis","status":"up"' in server.ask("GET", "/readyz").body, "Redis is in use")
    return server


@pytest.fixture
def serve(serve):
    return lambda *arguments, **options: wait_redis(serve(*arguments, **options))


@pytest.fixture(scope="module")
def module_redis():
    """Of this file: its tests empty it and look at all that it holds."""
    with available(Redis) as server:
        yield server


@pytest.fixture
def own_redis(module_redis):
    module_redis.do("FLUSHALL")
    return module_redis


@pytest.fixture(scope="module")
def shared_stack(postgres_server, module_redis, tmp_path_factory):
    """Of the server that tests share, each with users of its own; `redis_stack` is for servers of a test's own."""
    fresh = postgres_server.create_database()
    yield PostgresStack(tmp_path_factory.mktemp("gateway"), module_redis.url, fresh)
    fresh.drop()


@pytest.fixture(scope="module")
def module_server(shared_stack, module_serve):
    return wait_redis(module_serve(shared_stack))


@pytest.fixture
def server(module_server):
    yield module_server
    module_server.check_alive()


@pytest.fixture
def gateway(server, gateway_client):
    return gateway_client(server)


def fields(redis, user):
    found = redis.hash(user)
    return {name: int(found[name]) for name in NEEDED} if found else None


def test_r10_1_r13_3_a_cold_cache_is_filled_from_the_store_with_the_rest_of_the_window(
    gateway, own_redis, shared_stack
):
    user = gateway.new_user(5, 60)
    assert own_redis.hash(user) == {}
    assert gateway.send(user).status == 200
    row = shared_stack.row(user)
    assert fields(own_redis, user) == {"rateLimit": 5, "currentCount": 1, "windowStart": row["last_refresh_time"]}
    assert 2700_000 < own_redis.ttl_ms(user) <= 3600_000


def test_r10_3_a_miss_in_a_running_window_carries_the_count_over(gateway, own_redis):
    user = gateway.new_user(5, 60)
    for _ in range(3):
        gateway.send(user)
    own_redis.do("FLUSHALL")
    assert gateway.send(user).json()["remaining"] == 1
    assert fields(own_redis, user)["currentCount"] == 4
    assert len(gateway.use_up(user)) == 1


def test_r9_4_r10_3_the_hash_ends_when_the_window_ends_rounded_up_to_a_second(
    serve, gateway_client, redis_stack, own_redis
):
    server = serve(redis_stack)
    user = gateway_client(server).new_user(5, 60)
    server.stop()
    shifted = serve(redis_stack, env={"QUIPU_TEST_CLOCK_OFFSET": "30m"})
    gateway_client(shifted).send(user)
    assert 900_000 < own_redis.ttl_ms(user) <= 1_800_000


def test_r9_4_r10_2_a_miss_on_an_elapsed_window_resets_the_row_and_starts_at_0(
    serve, gateway_client, redis_stack, own_redis
):
    server = serve(redis_stack)
    gateway = gateway_client(server)
    user = gateway.new_user(5, 60)
    for _ in range(3):
        gateway.send(user)
    before = redis_stack.row(user)
    server.stop()
    own_redis.do("FLUSHALL")
    gateway = gateway_client(serve(redis_stack, env={"QUIPU_TEST_CLOCK_OFFSET": "90m"}))
    assert gateway.send(user).json()["remaining"] == 4
    row = redis_stack.row(user)
    assert row["last_refresh_time"] - before["last_refresh_time"] > 3600_000_000
    assert (row["current_count"], row["reserved_count"]) == (1, 1)
    assert fields(own_redis, user) == {"rateLimit": 5, "currentCount": 1, "windowStart": row["last_refresh_time"]}
    assert 2700_000 < own_redis.ttl_ms(user) <= 3600_000


def test_r9_1_r9_2_r11_2_what_the_hash_refuses_does_not_reach_the_store(gateway, own_redis, shared_stack):
    """A full hash over an empty row: 429, though the store would admit it."""
    user = gateway.new_user(5, 60)
    gateway.send(user)
    row = shared_stack.row(user)
    own_redis.do("HSET", hash_key(user), "currentCount", 5)
    for _ in range(3):
        assert gateway.send(user).status == 429
    assert shared_stack.row(user) == row
    own_redis.do("DEL", hash_key(user))
    assert gateway.send(user).status == 200


def test_a_hash_of_another_program_refuses_until_it_expires_and_grants_nothing(gateway, own_redis, shared_stack):
    """The seed's two fields and a TTL."""
    user = gateway.new_user(5, 60)
    own_redis.do("DEL", hash_key(user))
    own_redis.do("HSET", hash_key(user), "rateLimit", 2, "currentCount", 1)
    own_redis.do("EXPIRE", hash_key(user), 3600)
    assert gateway.send(user).status == 200
    assert own_redis.do("HGET", hash_key(user), "currentCount") == "1"
    own_redis.do("HSET", hash_key(user), "currentCount", 2)
    row = shared_stack.row(user)
    answer = gateway.send(user)
    assert answer.status == 429 and 3000 < int(answer.header("retry-after")) <= 3600
    assert shared_stack.row(user) == row
    own_redis.do("DEL", hash_key(user))  # as if it had expired
    assert gateway.send(user).status == 200


def test_a_hash_whose_row_is_gone_is_dropped(gateway, own_redis, shared_stack):
    """The hash grants a send that gets 404: the slot that it counts was spent for nothing."""
    user = gateway.new_user(5, 60)
    assert gateway.send(user).status == 200
    shared_stack.database.query("DELETE FROM rate_limit_store WHERE user_id = %s", (user,))
    assert fields(own_redis, user)["currentCount"] == 1
    assert [gateway.send(user).status for _ in range(2)] == [404, 404]
    assert own_redis.hash(user) == {}


def test_a_hash_with_a_larger_limit_than_the_row_is_dropped_with_what_it_granted(gateway, own_redis, shared_stack):
    user = gateway.new_user(5, 60)
    assert gateway.take(user, 1).status == 200
    shared_stack.database.query("UPDATE rate_limit_store SET rate_limit = 3 WHERE user_id = %s", (user,))
    assert gateway.take(user, 4).status == 400
    assert [gateway.take(user, 1).status for _ in range(3)] == [200, 200, 429]
    assert fields(own_redis, user)["rateLimit"] == 3


def test_r9_2_a_refusal_is_answered_while_another_session_holds_the_row(gateway, shared_stack):
    user = gateway.new_user(1)
    gateway.use_up(user)
    connection = shared_stack.database.connect()
    connection.autocommit = False
    connection.cursor().execute("SELECT 1 FROM rate_limit_store WHERE user_id = %s FOR UPDATE", (user,))
    try:
        assert gateway.send(user).status == 429
    finally:
        connection.close()


def test_r11_4_every_send_that_succeeds_is_in_the_store_too(gateway, own_redis, shared_stack):
    user = gateway.new_user(10)
    for sent in range(1, 6):
        gateway.send(user)
        assert shared_stack.count(user) == fields(own_redis, user)["currentCount"] == sent


def test_r9_3_r10_5_1_a_configuration_deletes_the_key_and_writes_nothing_to_the_cache(gateway, own_redis):
    user, other = gateway.new_user(5), gateway.new_user(5)
    gateway.send(user)
    gateway.send(other)
    before = own_redis.calls()
    assert gateway.configure(user, 7).status == 200
    after = own_redis.calls()
    assert own_redis.keys() == {hash_key(other)}
    changed = {name for name in after if after[name] != before.get(name, 0)}
    assert changed & {"del", "unlink"}
    assert changed <= {"del", "unlink", "ping", "info", "keys"}
    gateway.send(user)
    assert fields(own_redis, user)["rateLimit"] == 7


def test_r10_5_3_configuring_and_looking_put_nothing_into_the_cache(gateway, own_redis):
    user = gateway.new_user(5)
    gateway.look(user)
    assert gateway.send(new_user()).status == 404
    assert own_redis.keys() == set()


@pytest.mark.parametrize("used", [0, 2], ids=["some left", "used up"])
def test_r9_3_a_configuration_that_races_with_a_fill_leaves_no_stale_hash_in_use(
    serve, gateway_client, redis_stack, own_redis, used
):
    """One process has read the old row and is about to fill the cache; another changes the row and deletes the key."""
    tap = Tap(own_redis.port)
    other = gateway_client(serve(redis_stack))
    gateway = gateway_client(serve(redis_stack.beside(cache=tap.url)))
    user = other.new_user(2)
    for _ in range(used):
        other.send(user)
    own_redis.do("FLUSHALL")
    tap.hold(lambda data: b"windowStart" not in data and data.count(b"$") >= 7 and user.encode() in data,
             lambda: other.configure(user, 4))
    first = gateway.send(user).status
    assert tap.fired.is_set()
    admitted = len(gateway.use_up(user))
    row = redis_stack.row(user)
    assert (row["rate_limit"], row["current_count"]) == (4, 4), f"first {first}, then {admitted} more"
    tap.close()


@pytest.mark.parametrize("limits", [(2, 4), (100, 1)], ids=["used up, then raised", "room left, then lowered"])
def test_r9_3_a_fill_that_is_held_while_a_configuration_commits_leaves_no_stale_hash(
    serve, gateway_client, redis_stack, own_redis, limits
):
    """The process that fills stops with the old row in its hands; by the time it goes on, all has changed."""
    before, after = limits
    other = gateway_client(serve(redis_stack))
    user = other.new_user(before)
    for _ in range(2):
        assert other.send(user).status == 200
    own_redis.do("FLUSHALL")
    filler = serve(redis_stack.beside(), env={"QUIPU_FAILPOINTS": "gateway.filling=stop"})
    with filler.connect() as connection:
        connection.send(send_request(user))
        wait_until(filler.stopped, "the process stops at the failpoint")
        assert own_redis.hash(user) == {}
        assert other.configure(user, after).status == 200
        filler.signal(signal.SIGCONT)
        assert connection.read_answer().status == 200
    row = redis_stack.row(user)
    assert (row["rate_limit"], row["current_count"]) == (after, 1)
    fresh = {"rateLimit": after, "currentCount": 1, "windowStart": row["last_refresh_time"]}
    assert fields(own_redis, user) in (None, fresh)
    gateway = gateway_client(filler)
    assert len(gateway.use_up(user)) == after - 1
    assert other.send(user).status == 429
    row = redis_stack.row(user)
    assert (row["current_count"], row["reserved_count"]) == (after, after)
    assert fields(own_redis, user) == {**fresh, "currentCount": after}


@pytest.mark.parametrize("count", [10, 0])
def test_redis_restored_from_an_older_copy_admits_no_more_than_the_limit(gateway, own_redis, shared_stack, count):
    user = gateway.new_user(30)
    assert [gateway.send(user).status for _ in range(10)] == [200] * 10
    copy, ttl_ms = own_redis.hash(user), own_redis.ttl_ms(user)
    assert len(gateway.use_up(user)) == 20
    own_redis.put_hash(user, {**copy, "currentCount": count}, ttl_ms)
    answers = ask_all([(gateway.port, send_request(user))] * 60)
    assert {answer.status for answer in answers} == {429}
    assert shared_stack.count(user) == 30


def test_redis_restored_from_a_copy_of_an_older_window_admits_no_more_than_the_limit(gateway, own_redis, shared_stack):
    user = gateway.new_user(100)
    gateway.send(user)
    copy, ttl_ms = own_redis.hash(user), own_redis.ttl_ms(user)
    gateway.configure(user, 5)
    own_redis.put_hash(user, copy, ttl_ms)
    answers = ask_all([(gateway.port, send_request(user))] * 40)
    assert sum(answer.status == 200 for answer in answers) == 5
    assert shared_stack.count(user) == 5
    gateway.send(user)
    wait_until(lambda: gateway.send(user).status == 429 and (fields(own_redis, user) or {}).get("rateLimit") == 5,
               "the stale hash is replaced")


@pytest.mark.parametrize(
    "damage",
    [("SET", "x"), ("HSET", "currentCount", "many"), ("HSET", "rateLimit", "-5"), ("HDEL", "windowStart"),
     ("HSET", "currentCount", "-1000000"), ("HSET", "rateLimit", "1000000000000"), ("PERSIST",)],
    ids=" ".join,
)
def test_a_damaged_hash_admits_no_more_than_the_limit_and_breaks_nothing(gateway, own_redis, shared_stack, damage):
    user = gateway.new_user(5)
    assert [gateway.send(user).status for _ in range(2)] == [200, 200]
    if damage[0] == "SET":
        own_redis.do("DEL", hash_key(user))
    own_redis.do(damage[0], hash_key(user), *damage[1:])
    assert len(gateway.use_up(user)) == 3
    assert shared_stack.count(user) == 5


def test_scripts_that_redis_has_forgotten_are_sent_again(gateway, own_redis, server):
    user = gateway.new_user(5)
    gateway.send(user)
    own_redis.do("SCRIPT", "FLUSH")
    assert gateway.send(user).status == 200
    assert fields(own_redis, user)["currentCount"] == 2
    assert "REDIS DOWN" not in server.log_text()


def test_a_keyed_send_in_between_is_counted_by_the_store(gateway, own_redis, shared_stack):
    """It passes the cache by, which may then let through what the store refuses."""
    user = gateway.new_user(4)
    gateway.send(user)
    assert [gateway.send(user, key=new_key()).status for _ in range(2)] == [200, 200]
    assert len(gateway.use_up(user)) == 1
    assert shared_stack.count(user) == 4


def test_one_batch_asks_redis_once(gateway, own_redis, server):
    """Hits on one user by many at once are one script run a batch, not one a send."""
    user = gateway.new_user(10_000)
    gateway.send(user)
    before = own_redis.calls()
    answers = ask_at_once(server, [send_request(user)] * 200)
    assert {answer.status for answer in answers} == {200}
    after = own_redis.calls()
    scripts = sum(after.get(name, 0) - before.get(name, 0) for name in ("evalsha", "eval"))
    assert 0 < scripts < 100

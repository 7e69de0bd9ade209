"""Redis, PostgreSQL or the bus away: the limits hold, the answers say what is wrong, recovery needs nobody."""

import contextlib

import pytest

from harness import faults
from harness.counts import new_key
from harness.gateway import new_user
from harness.gateway_stacks import PostgresStack
from harness.problems import assert_problem
from harness.redis import hash_key
from harness.sends import Sends
from harness.waiting import wait_until

DOWN = "REDIS DOWN — Falling back to Postgres"
BACK = "Redis is in use"


def dependencies(server):
    answer = server.ask("GET", "/readyz")
    return answer.status, {entry["name"]: entry["status"] for entry in answer.json()["dependencies"]}


def tells_once(server, away):
    """Whether the log tells of every outage once, and of every return. There may be more than those of the test: on a
    busy machine even a Redis that is well can be too slow for a moment."""
    log = server.log_text()
    return 0 < log.count(DOWN) == log.count(BACK) - (0 if away else 1)


def is_copied(gateway, redis):
    """Whether Redis counts what a new user sends."""
    user = gateway.new_user(2)
    gateway.send(user)
    return redis.hash(user).get("currentCount") == "1"


@contextlib.contextmanager
def stopped(redis):
    redis.stop()
    yield
    redis.start()


@pytest.fixture(params=["stopped", "hanging"])
def redis_away(request, own_redis):
    """`with redis_away(): …`: Redis is ended, or alive and silent."""
    return lambda: stopped(own_redis) if request.param == "stopped" else own_redis.frozen()


def test_r10_5_r11_5_4_r13_4_redis_away_under_load_costs_no_answer_and_the_limit_holds(
    serve, gateway_client, redis_stack, own_redis, redis_away
):
    server = serve(redis_stack)
    gateway = gateway_client(server)
    user, limit = gateway.new_user(400), 400
    with Sends(user, server, threads=4, refusals=20) as sends:
        sends.wait_under_way(50)
        with redis_away():
            wait_until(lambda: dependencies(server)[1]["cache"] == "down", "/readyz says that the cache is down")
            assert dependencies(server)[0] == 200  # it can do without
            sends.wait_under_way(100, since=len(sends.admitted))
            wait_until(lambda: tells_once(server, away=True), "the outage is told, and not for every send")
        sends.finish()
    assert len(sends.admitted) == limit and not sends.failed
    assert redis_stack.count(user) == limit
    wait_until(lambda: dependencies(server)[1]["cache"] == "up", "the cache is in use again")
    wait_until(lambda: is_copied(gateway, own_redis), "and counts")
    wait_until(lambda: tells_once(server, away=False), "its end is told too")


def test_r9_3_r10_5_2_a_configuration_while_redis_is_away_succeeds_and_is_what_counts_afterwards(
    serve, gateway_client, redis_stack, own_redis
):
    """The key that could not be deleted is dropped before the cache is used again."""
    server = serve(redis_stack)
    gateway = gateway_client(server)
    user = gateway.new_user(2)
    gateway.use_up(user)
    with own_redis.frozen():
        assert gateway.configure(user, 3).status == 200
        wait_until(lambda: DOWN in server.log_text(), "the log says so")
        assert gateway.send(user).json()["remaining"] == 2
    wait_until(lambda: dependencies(server)[1]["cache"] == "up", "the cache is in use again")
    assert len(gateway.use_up(user)) == 2
    assert own_redis.do("HGET", hash_key(user), "rateLimit") == "3"


def test_a_start_without_redis_serves_and_says_so(serve, gateway_client, redis_stack, own_redis):
    own_redis.stop()
    server = serve(redis_stack)
    gateway = gateway_client(server)
    user = gateway.new_user(2)
    assert len(gateway.use_up(user)) == 2
    wait_until(lambda: DOWN in server.log_text(), "the log says so")
    own_redis.start()
    wait_until(lambda: dependencies(server)[1]["cache"] == "up", "the cache is in use")
    assert gateway.send(user).status == 429
    assert own_redis.hash(user)


@pytest.fixture(params=["none", "redis"])
def own_stack(request, own_postgres, tmp_path):
    cache = request.getfixturevalue("own_redis").url if request.param == "redis" else "none"
    return PostgresStack(tmp_path, cache, own_postgres.create_database())


def test_r1_4_r10_4_postgres_away_under_load_is_a_503_and_recovery_needs_nobody(
    serve, gateway_client, own_postgres, own_stack
):
    server = serve(own_stack)
    gateway = gateway_client(server)
    user, full, limit = gateway.new_user(2000), gateway.new_user(1), 2000
    gateway.use_up(full)
    with Sends(user, server, threads=4, refusals=20) as sends:
        sends.wait_under_way(50)
        own_postgres.stop("immediate")
        sends.wait_failed(20)
        wait_until(lambda: dependencies(server)[1]["gateway-store"] == "down", "/readyz names the store")
        assert dependencies(server)[0] == 503
        assert_problem(gateway.configure(new_user(), 5), 503, "STORE_UNAVAILABLE")
        assert_problem(gateway.look(user), 503, "STORE_UNAVAILABLE")
        assert_problem(gateway.send(new_user()), 503, "STORE_UNAVAILABLE")
        # the cache refuses by itself what is used up; without it nobody can tell
        assert gateway.send(full).status == (503 if own_stack.cache == "none" else 429)
        own_postgres.start()
        wait_until(lambda: dependencies(server)[0] == 200, "/readyz says ready again")
        sends.finish()
    assert set(sends.failed) <= {"STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"}
    assert limit - len(sends.unknown) <= len(sends.admitted) <= limit or own_stack.cache != "none"
    assert len(sends.admitted) <= own_stack.row(user)["reserved_count"] <= limit
    assert gateway.configure(user, 1).status == 200
    assert len(gateway.use_up(user)) == 1


def test_a_take_or_send_while_postgres_is_known_to_be_away_is_a_503_and_spends_nothing(
        serve, gateway_client, own_postgres, own_stack):
    """Not even in the cache, where what was granted is never given back."""
    server = serve(own_stack)
    server.wait_all_up()
    gateway = gateway_client(server)
    user, full = gateway.new_user(5), gateway.new_user(1)
    assert gateway.take(user, 2).status == gateway.take(full, 1).status == 200
    own_postgres.stop("immediate")
    wait_until(lambda: dependencies(server)[1]["gateway-store"] == "down", "/readyz names the store")
    for key in (None, new_key()):
        assert_problem(gateway.take(user, 2, key=key), 503, "STORE_UNAVAILABLE")
        assert_problem(gateway.send(user, key=key), 503, "STORE_UNAVAILABLE")
    assert gateway.take(full, 1).status == (503 if own_stack.cache == "none" else 429)
    own_postgres.start()
    wait_until(lambda: dependencies(server)[0] == 200, "/readyz says ready again")
    assert (gateway.count(user), gateway.count(full)) == (2, 1)
    assert [gateway.take(user, 1).status for _ in range(4)] == [200, 200, 200, 429]
    assert gateway.take(full, 1).status == 429


@contextlib.contextmanager
def full_disk(stack):
    """A data folder, and with it the queue of `local:`, on a disk that can be filled."""
    stack.data.mkdir()
    try:
        with faults.small_disk(stack.data, "4m"):
            yield
    except faults.Unavailable as reason:
        pytest.skip(str(reason))


def fail_on_full_disk(gateway, user):
    """Sends until the bus says by itself that it is away; returns how many sends are of unknown outcome.

    The queue cannot tell what became of a COMMIT that failed, so the first may be; it stays reserved.
    """
    unknown = 0
    while True:
        answer = gateway.send(user, "x" * 15_000)
        assert answer.status == 503, answer
        if answer.code == "BUS_UNAVAILABLE":
            assert_problem(answer, 503, "BUS_UNAVAILABLE")
            return unknown
        assert_problem(answer, 503, "OUTCOME_UNKNOWN")
        unknown += 1
        assert unknown <= 3


def test_r4_2_a_send_that_the_bus_does_not_take_is_a_503_and_not_counted(serve, gateway_client, postgres_stack):
    with full_disk(postgres_stack):
        server = serve(postgres_stack)
        gateway = gateway_client(server)
        user = gateway.new_user(10)
        gateway.send(user)
        filler = faults.fill_disk(postgres_stack.data)
        unknown = 0
        for _ in range(5):
            unknown += fail_on_full_disk(gateway, user)
            row = postgres_stack.row(user)
            assert (row["current_count"], row["reserved_count"]) == (1, 1 + unknown)
        filler.unlink()
        wait_until(lambda: gateway.send(user).status == 200, "the bus works again by itself")
        assert len(gateway.use_up(user)) == 8 - unknown
        server.stop()


@pytest.mark.parametrize("cache", ["none", "redis"])
def test_a_take_needs_no_bus(serve, gateway_client, database, own_redis, tmp_path, cache):
    stack = PostgresStack(tmp_path, own_redis.url if cache == "redis" else "none", database)
    with full_disk(stack):
        server = serve(stack)
        server.wait_all_up()
        gateway = gateway_client(server)
        user, sender = gateway.new_user(5), gateway.new_user(5)
        filler = faults.fill_disk(stack.data)
        fail_on_full_disk(gateway, sender)
        wait_until(lambda: dependencies(server)[1]["gateway-bus"] == "down", "the bus is known to be down")
        assert gateway.take(user, 2).json()["remaining"] == 3
        assert_problem(gateway.send(user), 503, "BUS_UNAVAILABLE")
        assert gateway.take(user, 2, key=new_key()).json()["remaining"] == 1
        filler.unlink()
        wait_until(lambda: dependencies(server)[1]["gateway-bus"] == "up", "the bus is up")
        assert gateway.send(user).json()["remaining"] == 0
        assert gateway.take(user).status == gateway.send(user).status == 429
        server.stop()


def test_r11_6_1_r11_6_2_r11_6_3_on_the_cache_path_a_failed_send_costs_a_slot(
    serve, gateway_client, redis_stack, own_redis
):
    """Counted in the hash before publishing, and never taken back; the row counts only what the bus has."""
    with full_disk(redis_stack):
        server = serve(redis_stack)
        gateway = gateway_client(server)
        user = gateway.new_user(10)
        gateway.send(user)
        filler = faults.fill_disk(redis_stack.data)
        unknown = fail_on_full_disk(gateway, user)
        spent = int(own_redis.hash(user)["currentCount"]) - 1
        assert unknown <= spent <= unknown + 1  # the last was refused by the bus, or before the cache was asked
        wait_until(lambda: dependencies(server)[1]["gateway-bus"] == "down", "the bus is known to be down")
        for _ in range(3):
            assert_problem(gateway.send(user), 503, "BUS_UNAVAILABLE")
        assert own_redis.hash(user)["currentCount"] == str(1 + spent), "nothing is spent while the bus is down"
        assert redis_stack.count(user) == 1
        filler.unlink()
        wait_until(lambda: dependencies(server)[1]["gateway-bus"] == "up", "the bus is up")
        assert len(gateway.use_up(user)) == 9 - spent
        assert redis_stack.count(user) == 10 - spent
        server.stop()

"""The master of a Redis with Sentinels dies. No answer depends on it, and the new master is used without a restart."""

import pytest

from engines.sentinel import SentinelRedis
from harness.available import available
from harness.gateway_stacks import PostgresStack
from harness.redis import Redis
from harness.sends import Sends
from harness.waiting import wait_until


@pytest.fixture
def redis():
    with available(lambda: SentinelRedis(Redis)) as servers:
        yield servers


@pytest.fixture
def stack(redis, database, tmp_path):
    return PostgresStack(tmp_path, redis.url, database)


@pytest.fixture
def server(serve, stack, redis, gateway_client):
    started = serve(stack)
    wait_until(lambda: copies(gateway_client(started), redis.master), "the master is in use")
    return started


@pytest.fixture
def gateway(server, gateway_client):
    return gateway_client(server)


def copies(gateway, redis):
    """Whether the gateway keeps its copies in this server."""
    user = gateway.new_user(2)
    assert gateway.send(user).status == 200
    return redis.hash(user) != {}


def test_the_replica_takes_over_under_load_and_the_limit_holds(redis, serve, server, stack, gateway):
    other = serve(stack.beside())
    user, limit = gateway.new_user(2000), 2000
    with Sends(user, server, other, threads=4, refusals=20) as sends:
        sends.wait_under_way(50)
        redis.master.kill()
        wait_until(lambda: copies(gateway, redis.replica), "the new master is in use")
        sends.finish()
    assert len(sends.admitted) == limit and not sends.failed
    assert stack.count(user) == limit


def test_a_copy_whose_deletion_did_not_reach_the_replica_decides_nothing(redis, gateway):
    """Replication is asynchronous: the master may die before it has passed on a deletion."""
    user = gateway.new_user(2)
    gateway.use_up(user)
    wait_until(lambda: redis.replica.hash(user).get("currentCount") == "2", "the replica has the copy")
    stale, ttl_ms = redis.replica.hash(user), redis.replica.ttl_ms(user)
    assert gateway.configure(user, 3).status == 200
    wait_until(lambda: redis.replica.hash(user) == {}, "the deletion has been passed on")
    redis.replica.do("CONFIG", "SET", "replica-read-only", "no")
    redis.replica.put_hash(user, stale, ttl_ms)
    redis.master.kill()
    wait_until(lambda: copies(gateway, redis.replica), "the new master is in use")
    assert gateway.send(user).json()["remaining"] == 2


def test_a_failover_while_both_servers_are_up_is_followed(redis, gateway):
    redis.fail_over()
    wait_until(lambda: copies(gateway, redis.replica), "the new master is in use")


def test_sentinels_that_are_away_leave_the_master_in_use(redis, gateway):
    for sentinel in redis.sentinels:
        sentinel.kill()
    assert copies(gateway, redis.master)


class Secretive(PostgresStack):
    """The cache is in QUIPU_CACHE: a flag must not have a password."""

    def arguments(self):
        words = super().arguments()
        at = words.index("--cache")
        return words[:at] + words[at + 2:]


def test_sentinels_may_require_the_password_of_redis(serve, gateway_client, database, tmp_path):
    with available(lambda: SentinelRedis(Redis, restricted=True)) as redis:
        stack = Secretive(tmp_path, redis.url, database)
        gateway = gateway_client(serve(stack, env={"QUIPU_CACHE": redis.url}))
        wait_until(lambda: copies(gateway, redis.master), "the master is in use")

"""Windows: lazy refresh when they have elapsed, and a clock that steps back frees nothing."""

import collections

import pytest

from harness.gateway import YEAR, new_user
from harness.gateway_stacks import on_each_engine
from harness.redis import hash_key
from harness.sends import Sends
from harness.waiting import wait_until

HOUR = 60  # a window that ends only when the clock is shifted


@pytest.fixture
def at_offset(serve, gateway_client, stack, request):
    """Restarts the gateway with its clock shifted: `gateway = at_offset('61s')`. Redis, whose clock no test can
    shift, forgets what it knows."""
    running = []

    def start(offset):
        if running:
            running.pop().stop()
        if stack.cache.startswith("redis"):
            request.getfixturevalue("redis_server").do("FLUSHALL")
        running.append(serve(stack, env={"QUIPU_TEST_CLOCK_OFFSET": offset}))
        return gateway_client(running[-1])

    return start


@on_each_engine
def test_r2_2_r3_3_r10_2_an_elapsed_window_is_refreshed_by_the_send_that_finds_it(at_offset, stack):
    gateway, user = at_offset("0s"), new_user()
    gateway.configure(user, 2, HOUR)
    assert len(gateway.use_up(user)) == 2
    before = stack.row(user)

    gateway = at_offset("30m")
    assert gateway.send(user).status == 429
    assert stack.row(user) == before

    gateway = at_offset("60m")
    assert gateway.count(user) == 0  # what a send would see; the row itself is refreshed by a send only
    assert stack.row(user) == before
    answer = gateway.send(user)
    assert (answer.status, answer.json()["remaining"]) == (200, 1)
    after = stack.row(user)
    assert after["current_count"] == 1
    assert after["last_refresh_time"] - before["last_refresh_time"] >= 3600_000_000
    assert len(gateway.use_up(user)) == 1


@on_each_engine
@pytest.mark.parametrize("back_s", [10, 7200])
def test_a_clock_that_is_set_back_frees_nothing_and_locks_out_for_one_window_at_most(at_offset, stack, back_s):
    gateway, user = at_offset("0s"), new_user()
    gateway.configure(user, 2, HOUR)
    assert len(gateway.use_up(user)) == 2
    before = stack.row(user)
    gateway = at_offset(f"-{back_s}s")
    assert gateway.send(user).status == 429
    assert gateway.count(user) == 2
    after = stack.row(user)
    assert after["last_refresh_time"] < before["last_refresh_time"], "the window begins at the time that it is now"
    assert (after["current_count"], after["reserved_count"]) == (2, 2)
    gateway = at_offset(f"{3600 - back_s}s")
    assert gateway.send(user).status == 200


@on_each_engine
def test_a_configuration_made_after_the_clock_stepped_back_starts_a_window_of_its_own(at_offset, stack):
    gateway, user = at_offset("0s"), new_user()
    gateway.configure(user, 2, HOUR)
    gateway.use_up(user)
    gateway = at_offset("-7200s")
    gateway.configure(user, 3, HOUR)
    assert len(gateway.use_up(user)) == 3
    assert gateway.send(user).status == 429


@on_each_engine
def test_r11_3_under_steady_load_every_window_admits_up_to_the_limit_and_never_more(serve, gateway_client, stack):
    server = serve(stack, "--gateway-window-unit", "100ms")
    user = gateway_client(server).new_user(3, 2)
    with Sends(user, server, threads=4) as sends:

        def windows():
            return collections.Counter(body["resetAt"] for body in list(sends.admitted.values()))

        # one in which nobody came often enough, as on a busy machine, is not full
        wait_until(lambda: list(windows().values()).count(3) >= 4, "four windows are full")
    assert sends.unexpected == [] and not sends.failed
    assert max(windows().values()) == 3


def test_r9_4_a_window_that_ends_takes_its_hash_with_it(serve, gateway_client, redis_stack, own_redis):
    server = serve(redis_stack, "--gateway-window-unit", "100ms")
    gateway = gateway_client(server)
    lasting, user = gateway.new_user(1), gateway.new_user(1, 2)
    gateway.use_up(lasting)
    assert 0 < own_redis.ttl_ms(lasting) <= YEAR * 100
    gateway.use_up(user)
    wait_until(lambda: not own_redis.do("EXISTS", hash_key(user)), "the hash expires")
    wait_until(lambda: gateway.send(user).status == 200, "a new window")

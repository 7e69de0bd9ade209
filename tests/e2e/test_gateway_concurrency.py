"""Exact under concurrency: requirements 3.2 and 11.6, from one process and from two, with every cache."""

import threading

import pytest

from harness.gateway import send_request, texts_sent
from harness.http import ask_all
from harness.sends import Sends
from harness.waiting import wait_until


def statuses(answers):
    return {status: sum(answer.status == status for answer in answers) for status in {a.status for a in answers}}


@pytest.fixture(params=["none", "redis"])
def shared_stack(request):
    return request.getfixturevalue("postgres_stack" if request.param == "none" else "redis_stack")


def test_r3_2_r11_6_with_one_slot_left_one_of_100_sends_from_two_processes_is_admitted(
    serve, gateway_client, shared_stack
):
    servers = [serve(shared_stack), serve(shared_stack.beside())]
    gateway = gateway_client(servers[0])
    for _ in range(3):
        user = gateway.new_user(5)
        assert [gateway.send(user).status for _ in range(4)] == [200] * 4
        answers = ask_all((servers[number % 2].port, send_request(user)) for number in range(100))
        assert statuses(answers) == {200: 1, 429: 99}
        assert shared_stack.count(user) == 5


def test_r3_2_of_ten_times_the_limit_exactly_the_limit_is_admitted_and_sent(serve, gateway_client, stack):
    server, limit = serve(stack), 40
    user = gateway_client(server).new_user(limit)
    answers = ask_all((server.port, send_request(user)) for _ in range(10 * limit))
    assert statuses(answers) == {200: limit, 429: 9 * limit}
    admitted = [answer.json() for answer in answers if answer.status == 200]
    assert len({body["messageId"] for body in admitted}) == limit
    assert sorted(body["remaining"] for body in admitted) == list(range(limit))
    wait_until(lambda: len(texts_sent(server)) >= limit, "all are printed")
    wait_until(lambda: stack.recorded() == limit, "all are recorded")
    assert len(texts_sent(server)) == len(set(texts_sent(server))) == limit
    row = stack.row(user)
    assert (row["current_count"], row["reserved_count"]) == (limit, limit)


def test_many_users_at_once_have_their_own_limits(gateway, gateway_server):
    limits = {gateway.new_user(limit): limit for limit in range(1, 21)}
    users = [user for user in limits for _ in range(20)]
    answers = ask_all((gateway_server.port, send_request(user)) for user in users)
    admitted = dict.fromkeys(limits, 0)
    for user, answer in zip(users, answers):
        admitted[user] += answer.status == 200
    assert admitted == limits


def test_configuring_and_sending_at_once_never_admits_more_than_both_windows(serve, gateway_client, shared_stack):
    """Each configuration gives the quota back; no send may be counted into neither of two windows."""
    servers = [serve(shared_stack), serve(shared_stack.beside())]
    gateway, limit = gateway_client(servers[0]), 10
    user = gateway.new_user(limit)
    with Sends(user, *servers, threads=4) as sends:
        sends.wait_admitted(limit // 2)
        for _ in range(10):
            admitted = len(sends.admitted)
            assert gateway.configure(user, limit).status == 200
            sends.wait_admitted(limit // 2, since=admitted)
        sends.wait_refused(20)
    windows = [body["resetAt"] for body in sends.admitted.values()]
    assert sends.unexpected == [] and not sends.failed
    assert all(windows.count(window) <= limit for window in set(windows))
    assert shared_stack.count(user) == windows.count(max(windows)) == limit


class Flushing:
    """FLUSHALL every 5 ms for as long as the block runs."""

    def __init__(self, redis):
        self._redis = redis
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.times = 0

    def _work(self):
        with self._redis.client() as client:
            while not self._ended.wait(0.005):
                client.flushall()
                self.times += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def test_a_cache_that_is_flushed_all_the_time_admits_exactly_the_limit(serve, gateway_client, redis_stack, own_redis):
    server = serve(redis_stack)
    user = gateway_client(server).new_user(500)
    with Flushing(own_redis) as flushing, Sends(user, server, threads=4, refusals=20) as sends:
        sends.finish()
    assert flushing.times >= 10
    assert len(sends.admitted) == len(set(sends.message_ids())) == 500
    assert not sends.failed and sends.refused == 80
    assert redis_stack.count(user) == 500


def test_two_processes_of_which_one_does_not_see_the_cache_are_exact(serve, gateway_client, redis_stack, own_redis):
    servers = [serve(redis_stack), serve(redis_stack.beside(cache="none"))]
    user = gateway_client(servers[0]).new_user(200)
    with Sends(user, *servers, threads=4, refusals=20) as sends:
        sends.finish()
    assert len(sends.admitted) == 200 and not sends.failed
    assert own_redis.hash(user)["rateLimit"] == "200"
    assert redis_stack.count(user) == 200

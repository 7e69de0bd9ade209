"""Spending from a limit without a message, and looking at what the next send would get, on every stack."""

import datetime
import time

import pytest

from harness.counts import new_key
from harness.gateway import limits_told, new_user, send_request
from harness.gateway_stacks import on_each_engine
from harness.http import ConnectionLost, ask_at_once, render
from harness.problems import assert_bad_request, assert_problem
from harness.redis import hash_key


def take_request(user, amount, key=None):
    return render("POST", f"/api/limits/{user}/take", {"amount": amount}, {"Idempotency-Key": key} if key else {})


def forecast(gateway, user):
    answer = gateway.forecast(user)
    assert answer.status == 200, answer
    assert limits_told(answer)["r"] == answer.json()["remaining"]
    return answer.json()


def seen(gateway, user):
    told = forecast(gateway, user)
    return told["allowed"], told["remaining"]


def test_takes_and_sends_spend_the_same_quota(gateway):
    user = gateway.new_user(5)
    assert gateway.take(user).json()["remaining"] == 4
    assert gateway.send(user).json()["remaining"] == 3
    answer = gateway.take(user, 3)
    assert answer.json().keys() == {"allowed", "remaining", "resetAt"}
    assert (answer.json()["allowed"], answer.json()["remaining"]) == (True, 0)
    assert limits_told(answer)["q"] == 5
    assert_problem(gateway.take(user), 429, "RATE_LIMIT_EXCEEDED")
    assert_problem(gateway.send(user), 429, "RATE_LIMIT_EXCEEDED")
    assert gateway.count(user) == 5


def test_a_take_is_all_or_nothing_and_a_refused_one_leaves_the_rest_to_others(gateway):
    user = gateway.new_user(5)
    assert gateway.take(user, 3).status == 200
    answer = gateway.take(user, 3)
    assert_problem(answer, 429, "RATE_LIMIT_EXCEEDED")
    assert (limits_told(answer)["r"], bool(answer.header("retry-after"))) == (2, True)
    assert gateway.count(user) == 3
    assert gateway.take(user, 2).json()["remaining"] == 0


def test_more_than_the_limit_is_a_400_whatever_is_left(gateway):
    user = gateway.new_user(5)
    assert_bad_request(gateway.take(user, 6), "amount")
    gateway.take(user, 5)
    assert_bad_request(gateway.take(user, 6), "amount")


@pytest.mark.parametrize("amount", [0, -1, 2**31, 1.5, "1", True, []])
def test_a_wrong_amount_is_a_400_and_spends_nothing(gateway, amount):
    user = gateway.new_user(5)
    assert_bad_request(gateway.take(user, amount), "amount")
    assert gateway.count(user) == 0


def test_a_user_without_a_limit_is_a_404(gateway):
    assert_problem(gateway.take(new_user()), 404, "CONFIG_NOT_FOUND")
    assert_problem(gateway.forecast(new_user()), 404, "CONFIG_NOT_FOUND")


def test_a_repeated_take_is_replayed_and_spends_once(gateway):
    user, key = gateway.new_user(5), new_key()
    first = gateway.take(user, 2, key=key)
    again = gateway.take(user, 2, key=key)
    assert (again.body, again.header("idempotent-replayed")) == (first.body, "true")
    assert gateway.count(user) == 2
    assert_problem(gateway.take(user, 3, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")


def test_a_refused_take_is_decided_anew(gateway):
    user, key = gateway.new_user(2), new_key()
    gateway.take(user, 2)
    assert gateway.take(user, 1, key=key).status == 429
    gateway.configure(user, 2)
    assert gateway.take(user, 1, key=key).status == 200


def test_at_one_moment_exactly_the_limit_is_spent_by_sends_and_takes_together(gateway, gateway_server):
    user = gateway.new_user(20)
    requests = [request for _ in range(12) for request in (send_request(user), take_request(user, 1), take_request(user, 2))]
    requests += [take_request(user, 1, new_key()) for _ in range(6)]
    spent = [1, 1, 2] * 12 + [1] * 6
    answers = ask_at_once(gateway_server, requests)
    assert {answer.status for answer in answers} <= {200, 429}
    assert sum(amount for amount, answer in zip(spent, answers) if answer.status == 200) == 20 == gateway.count(user)


def test_the_forecast_is_what_the_next_send_gets(gateway, gateway_stack):
    user = gateway.new_user(5)
    spend = [lambda: gateway.send(user), lambda: gateway.take(user, 2), lambda: gateway.send(user, key=new_key()),
             lambda: gateway.take(user, 3), lambda: gateway.take(user, 1), lambda: gateway.take(user, 1, key=new_key())]
    reset_at = gateway.take(user, 1).json()["resetAt"]
    for act in spend:
        before = gateway_stack.row(user)
        told = forecast(gateway, user)
        assert gateway_stack.row(user) == before, "looking writes nothing"
        assert told["resetAt"] == reset_at, "the window ends when the take said"
        answer = gateway.send(user)
        assert (answer.status == 200) == told["allowed"]
        if told["allowed"]:
            assert (answer.json()["remaining"], answer.json()["resetAt"]) == (told["remaining"] - 1, reset_at)
        act()
    assert seen(gateway, user) == (False, 0)
    assert gateway.send(user).status == 429


def test_the_forecast_of_a_hash_without_its_window_is_that_it_refuses_until_it_expires(
        serve, gateway_client, redis_stack, own_redis):
    """As another program writes it, with the two fields of the specification."""
    server = serve(redis_stack)
    server.wait_all_up()
    gateway = gateway_client(server)
    user = gateway.new_user(5)
    begun = time.time()
    own_redis.do("HSET", hash_key(user), "rateLimit", 5, "currentCount", 5)
    own_redis.do("EXPIRE", hash_key(user), 3600)
    told = forecast(gateway, user)
    assert (told["allowed"], told["remaining"]) == (False, 0)
    reset_at = datetime.datetime.fromisoformat(told["resetAt"].replace("Z", "+00:00")).timestamp()
    assert begun + 3599 <= reset_at <= time.time() + 3600


def test_two_processes_spend_exactly_the_limit(serve, gateway_client, redis_stack):
    one, other = serve(redis_stack), serve(redis_stack.beside())
    user = gateway_client(one).new_user(30)
    clients = [gateway_client(one), gateway_client(other)]
    answers = [clients[number % 2].take(user, 1 + number % 3) for number in range(40)]
    spent = sum(1 + number % 3 for number, answer in enumerate(answers) if answer.status == 200)
    assert spent == 30 == clients[0].count(user)
    assert [seen(client, user) for client in clients] == [(False, 0)] * 2


@pytest.mark.parametrize("loss", ["flushed", "away"])
def test_a_cache_that_is_lost_changes_no_decision(serve, gateway_client, redis_stack, own_redis, loss):
    server = serve(redis_stack)
    server.wait_all_up()
    gateway = gateway_client(server)
    user = gateway.new_user(5)
    gateway.take(user, 3)
    if loss == "flushed":
        own_redis.do("FLUSHALL")
        assert seen(gateway, user) == (True, 2)
        assert gateway.take(user, 3).status == 429
    else:
        own_redis.kill()
        assert gateway.take(user, 3).status == 429
        assert seen(gateway, user) == (True, 2)
    assert gateway.take(user, 2).status == 200
    assert seen(gateway, user) == (False, 0)


@on_each_engine
@pytest.mark.parametrize("point, spent", [("commit.before=kill", 0), ("commit.after=kill", 2)])
def test_after_kill_9_a_repeated_take_has_spent_once(serve, gateway_client, stack, point, spent):
    server = serve(stack)
    user, key = gateway_client(server).new_user(5), new_key()
    server.stop()
    crashed = serve(stack, env={"QUIPU_FAILPOINTS": point})
    with pytest.raises(ConnectionLost):
        gateway_client(crashed).take(user, 2, key=key)
    crashed.expect_to_be_killed()
    server = serve(stack)
    gateway = gateway_client(server)
    assert gateway.count(user) == spent
    assert gateway.take(user, 2, key=key).json()["remaining"] == 3
    assert gateway.count(user) == 2

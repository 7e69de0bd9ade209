"""The limit of everybody (--gateway-default-limit), shadow mode, and rows of the version before both."""

import pytest

from harness.gateway import CONFIG, limits_told, new_user
from harness.gateway_stacks import on_each_engine
from harness.http import ask_at_once, render
from harness.old_schema import OldSchema
from harness.quipu import run
from harness.problems import assert_bad_request, assert_problem
from harness.verify import verified
from harness.waiting import wait_until

DEFAULT = ("--gateway-default-limit", "3/60m")


def shadow(gateway, rate_limit=2):
    user = new_user()
    body = {"userId": user, "rateLimit": rate_limit, "timeWindow": 60, "mode": "shadow"}
    answer = gateway.ask("POST", CONFIG, body)
    assert (answer.status, answer.json()["mode"]) == (200, "shadow")
    return user


# ---- the limit of everybody


@on_each_engine
def test_a_user_without_a_limit_gets_the_default_at_the_first_send(serve, gateway_client, stack):
    gateway, user = gateway_client(serve(stack, *DEFAULT)), new_user()
    assert_problem(gateway.look(user), 404, "CONFIG_NOT_FOUND")
    assert (gateway.forecast(user).json()["allowed"], gateway.forecast(user).json()["remaining"]) == (True, 3)
    assert stack.row(user) is None, "looking writes nothing"
    assert len(gateway.use_up(user)) == 3
    assert (gateway.look(user).json()["rateLimit"], gateway.look(user).json()["timeWindow"]) == (3, 60)
    other = new_user()
    assert gateway.take(other, 2).json()["remaining"] == 1
    assert_bad_request(gateway.take(new_user(), 4), "amount")


def test_first_sends_of_a_user_from_two_processes_make_one_row(serve, gateway_client, redis_stack):
    servers = [serve(redis_stack, *DEFAULT), serve(redis_stack.beside(), *DEFAULT)]
    for _ in range(10):
        user = new_user()
        requests = [render("POST", f"/api/limits/{user}/take", {"amount": 1}) for _ in range(4)]
        with servers[0].frozen():
            late = [servers[0].connect() for _ in requests]
            for connection, request in zip(late, requests):
                connection.send(request)
        answers = ask_at_once(servers[1], requests) + [connection.read_answer() for connection in late]
        assert sorted(answer.status for answer in answers) == [200] * 3 + [429] * 5


@on_each_engine
def test_idle_rows_of_the_default_are_swept_and_others_stay(serve, gateway_client, stack):
    server = serve(stack, *DEFAULT)
    gateway = gateway_client(server)
    swept, kept, configured = new_user(), new_user(), gateway.new_user(3, 1)
    gateway.send(swept)
    gateway.send(kept)
    gateway.configure(kept, 3, 1)  # no longer the default's
    server.stop()
    server = serve(stack, *DEFAULT, env={"QUIPU_TEST_CLOCK_OFFSET": "599m"})
    gateway = gateway_client(server)
    recent = new_user()
    gateway.send(recent)
    server.stop()
    serve(stack, *DEFAULT, env={"QUIPU_TEST_CLOCK_OFFSET": "662m"})
    wait_until(lambda: stack.row(swept) is None, "the idle row is gone")
    assert all(stack.row(user) for user in (kept, configured, recent))


@on_each_engine
def test_a_changed_default_counts_from_the_next_window(serve, gateway_client, stack):
    if stack.cache.startswith("redis"):
        pytest.skip("no test can shift Redis' clock")
    server, user = serve(stack, *DEFAULT), new_user()
    gateway_client(server).send(user)
    server.stop()
    server = serve(stack, "--gateway-default-limit", "7/30m")
    assert gateway_client(server).forecast(user).json()["rateLimit"] == 3
    server.stop()
    gateway = gateway_client(serve(stack, "--gateway-default-limit", "7/30m", env={"QUIPU_TEST_CLOCK_OFFSET": "61m"}))
    assert gateway.forecast(user).json()["remaining"] == 7
    assert len(gateway.use_up(user)) == 7
    assert gateway.look(user).json()["timeWindow"] == 30


@pytest.mark.parametrize("wrong", ["5", "5/", "/1m", "0/1m", "-1/1m", "5/1x", "5/90s", "2147483648/1m", "5/1m/1", "5/1000d"])
def test_a_default_that_cannot_be_one_is_refused_at_start(binary, tmp_path, wrong):
    ended = run(binary, "serve", "--check-config", "--gateway-default-limit", wrong, cwd=tmp_path)
    assert ended.returncode != 0
    assert "--gateway-default-limit must be" in ended.stderr


# ---- shadow mode


def test_in_shadow_mode_decisions_are_told_and_counted_and_nothing_is_refused(gateway, gateway_server):
    before = gateway_server.metric("quipu_limit_shadow_refusals_total")
    user = shadow(gateway)
    answers = [gateway.send(user) for _ in range(4)] + [gateway.take(user, 5)]
    assert [answer.status for answer in answers] == [200] * 5
    assert [answer.json()["remaining"] for answer in answers] == [1, 0, 0, 0, 0]
    assert [limits_told(answer)["r"] for answer in answers] == [1, 0, 0, 0, 0]
    forecast = gateway.forecast(user).json()
    assert (forecast["allowed"], forecast["remaining"], forecast["mode"]) == (True, 0, "shadow")
    assert gateway.count(user) == 9
    wait_until(lambda: gateway_server.metric("quipu_limit_shadow_refusals_total") == before + 3, "refusals are counted")


def test_shadow_mode_ends_with_the_next_configuration(gateway):
    user = shadow(gateway)
    for _ in range(4):
        gateway.send(user)
    gateway.configure(user, 2)
    assert "mode" not in gateway.look(user).json()
    assert len(gateway.use_up(user)) == 2


def test_a_limit_that_is_used_up_refuses_nothing_once_it_is_in_shadow_mode(gateway):
    user = gateway.new_user(1)
    gateway.use_up(user)
    gateway.ask("POST", CONFIG, {"userId": user, "rateLimit": 1, "timeWindow": 60, "mode": "shadow"})
    assert [gateway.send(user).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("mode", ["", "Shadow", "off", 1, True, []])
def test_an_unknown_mode_is_a_400(gateway, mode):
    body = {"userId": new_user(), "rateLimit": 1, "timeWindow": 1, "mode": mode}
    assert_bad_request(gateway.ask("POST", CONFIG, body), "mode")


def test_verify_exempts_users_in_shadow_mode_from_the_rule_over_limit(binary, gateway, gateway_server):
    user = shadow(gateway, 1)
    for _ in range(3):
        gateway.send(user)
    verified(binary, gateway_server, "limits")


# ---- the version before


OLD = OldSchema("gateway.db", [("common", 1, "base"), ("common", 2, "operator_actions"),
                               ("gateway", 1, "rate_limit_store")])


@on_each_engine
def test_limits_of_the_version_before_go_on_as_they_were(serve, gateway_client, stack):
    now = "now()" if stack.engine == "postgres" else "strftime('%s', 'now') * 1000000"
    OLD.make(stack)
    OLD.run(stack, ["INSERT INTO rate_limit_store (user_id, rate_limit, time_window, current_count, last_refresh_time, "
                    f"reserved_count) VALUES ('old', 3, 60, 1, {now}, 2)"])
    gateway = gateway_client(serve(stack, *DEFAULT))
    assert gateway.look("old").json()["currentCount"] == 1
    assert gateway.forecast("old").json()["mode"] == "enforce"
    assert len(gateway.use_up("old")) == 1

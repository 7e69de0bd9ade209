"""POST /api/send: requirement 2 of the seed, on every stack, and what every answer tells about the limit."""

import contextlib
import datetime
import signal
import threading
import time
import uuid

import pytest

from harness.gateway import SEND, limits_told, new_text, new_user, send_request, texts_sent
from harness.gateway_stacks import on_each_engine
from harness.http import Connection
from harness.problems import assert_bad_request, assert_problem
from harness.waiting import wait_until

MESSAGE_MAX = 16 * 1024


def test_r2_3_a_send_below_the_limit_is_queued_counted_and_sent(gateway, gateway_server, gateway_stack):
    user, text = gateway.new_user(5), new_text()
    answer = gateway.send(user, text)
    assert answer.status == 200
    body = answer.json()
    assert (body["status"], body["userId"], body["remaining"]) == ("QUEUED", user, 4)
    assert str(uuid.UUID(body["messageId"])) == body["messageId"]
    assert gateway_stack.count(user) == 1
    wait_until(lambda: text in texts_sent(gateway_server), "the sender prints it")


def test_r2_4_at_the_limit_it_is_a_429_that_says_so_and_when_to_come_back(gateway):
    user = gateway.new_user(2, 1)
    assert [gateway.send(user).json()["remaining"] for _ in range(2)] == [1, 0]
    for _ in range(3):
        answer = gateway.send(user)
        problem = assert_problem(answer, 429, "RATE_LIMIT_EXCEEDED")
        assert "limit" in problem["detail"] and "exceeded" in problem["detail"]
        assert 1 <= int(answer.header("retry-after")) <= 60
    assert gateway.count(user) == 2


@pytest.mark.parametrize("limit, told", [(1, "1 message in 60 s"), (2, "2 messages in 60 s")])
def test_the_refusal_counts_messages_in_words_that_fit(gateway, limit, told):
    user = gateway.new_user(limit, 1)
    gateway.use_up(user)
    assert told in assert_problem(gateway.send(user), 429, "RATE_LIMIT_EXCEEDED")["detail"]


def test_r2_5_a_user_without_a_configuration_is_a_404(gateway):
    problem = assert_problem(gateway.send(new_user()), 404, "CONFIG_NOT_FOUND")
    assert "configuration" in problem["detail"]


def test_a_user_who_was_unknown_can_send_once_he_is_configured(gateway):
    user = new_user()
    assert gateway.send(user).status == 404
    gateway.configure(user, 1)
    assert [gateway.send(user).status for _ in range(2)] == [200, 429]


def test_users_have_limits_of_their_own(gateway):
    users = [gateway.new_user(limit) for limit in (1, 2, 3)]
    assert [len(gateway.use_up(user)) for user in users] == [1, 2, 3]


def test_every_decision_tells_the_limit_the_window_what_remains_and_when_it_ends(gateway):
    """Also a refusal that the cache gives by itself: the third, at the latest, is one."""
    before = time.monotonic()
    user = gateway.new_user(2, 60)
    for status, remaining in [(200, 1), (200, 0), (429, 0), (429, 0), (429, 0)]:
        answer = gateway.send(user)
        assert answer.status == status
        told = limits_told(answer)
        assert (told["q"], told["w"], told["r"]) == (2, 3600, remaining), answer
        assert 3600 - (time.monotonic() - before) - 1 <= told["t"] <= 3600
        if status == 429:
            assert int(answer.header("retry-after")) == told["t"]
            assert "2 messages in 3600 s" in answer.json()["detail"]


def test_a_refusal_tells_the_same_after_a_new_configuration(gateway):
    user = gateway.new_user(1, 60)
    gateway.use_up(user)
    gateway.configure(user, 2, 180)
    gateway.use_up(user)
    told = limits_told(gateway.send(user))
    assert (told["q"], told["w"], told["r"]) == (2, 10800, 0)


def test_reset_at_is_the_window_after_the_configuration(gateway):
    user = new_user()
    started = gateway.configure(user, 5, 2).json()["lastRefreshTime"]
    ends = gateway.send(user).json()["resetAt"]
    times = [datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (started, ends)]
    assert times[1] - times[0] == datetime.timedelta(minutes=2)


@pytest.mark.parametrize("field", ["userId", "message"])
@pytest.mark.parametrize("value", ["absent", None, [], {}, True, 1.5, ""])
def test_a_missing_or_wrong_field_is_a_400_that_names_it(gateway, field, value):
    body = {"userId": "someone", "message": "Hello!", field: value}
    if value == "absent":
        del body[field]
    assert_bad_request(gateway.ask("POST", SEND, body), field)


@pytest.mark.parametrize("message", [" ", "\t\r\n ", 5, "x" * (MESSAGE_MAX + 1), "ü" * (MESSAGE_MAX // 2) + "x"],
                         ids=["blank", "spaces", "number", "long", "long in bytes"])
def test_a_message_that_cannot_be_sent_is_a_400_and_costs_nothing(gateway, message):
    user = gateway.new_user(1)
    assert_bad_request(gateway.ask("POST", SEND, {"userId": user, "message": message}), "message")
    assert gateway.send(user).status == 200


@pytest.mark.parametrize("message", ["x" * MESSAGE_MAX, "ü" * (MESSAGE_MAX // 2), "日本語 🎉", "a\nb\tc\u0007"],
                         ids=["16 KiB", "16 KiB of UTF-8", "emoji", "control characters"])
def test_any_other_text_is_sent(gateway, gateway_server, message):
    user = gateway.new_user(1)
    assert gateway.send(user, message).status == 200
    shown = message.replace("\n", "\\x0a").replace("\t", "\\x09").replace("\u0007", "\\x07")
    wait_until(lambda: f"SMS SENT userId={user} message={shown}\n" in gateway_server.output.read_text(errors="replace"),
               "the whole message is printed on one line")


def test_snake_case_user_id_is_accepted(gateway):
    user = gateway.new_user(1)
    assert gateway.ask("POST", SEND, {"user_id": user, "message": "x"}).json()["userId"] == user


def test_a_refused_send_is_never_sent(gateway, gateway_server):
    user, text, marker = gateway.new_user(1), new_text(), new_text()
    gateway.use_up(user)
    assert gateway.send(user, text).status == 429
    gateway.send(gateway.new_user(1), marker)
    wait_until(lambda: marker in texts_sent(gateway_server), "a later message is printed")
    assert text not in texts_sent(gateway_server)


def waits_for_a_lock(database):
    """On whichever node of a cluster the row is."""
    sql = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return any(rows for rows in database.on_each_node(sql))


def test_r2_1_r3_1_a_send_waits_for_the_lock_of_the_row_and_for_no_other(serve, gateway_client, postgres_stack):
    server = serve(postgres_stack, "--deadline", "1h")
    gateway = gateway_client(server)
    locked, free = gateway.new_user(1), gateway.new_user(1)
    with contextlib.closing(postgres_stack.database.connect()) as session, Connection(server.port) as waiting:
        session.autocommit = False
        session.cursor().execute("SELECT 1 FROM rate_limit_store WHERE user_id = %s FOR UPDATE", (locked,))
        waiting.send(send_request(locked))
        wait_until(lambda: waits_for_a_lock(postgres_stack.database), "the send waits for the row")
        assert gateway.send(free).status == 200
        assert not waiting.readable(0)
        session.rollback()
        assert waiting.read_answer().status == 200


@on_each_engine
@pytest.mark.parametrize("point", ["gateway.reserved", "gateway.published"])
def test_r2_6_r4_3_a_send_is_counted_only_after_the_bus_has_it(serve, gateway_client, stack, point):
    server = serve(stack)
    user = gateway_client(server).new_user(1)
    server.stop()
    server = serve(stack, env={"QUIPU_FAILPOINTS": f"{point}=stop"})
    with Connection(server.port) as connection:
        connection.send(send_request(user))
        wait_until(server.stopped, "the process stops at the failpoint")
        row = stack.row(user)
        assert (row["current_count"], row["reserved_count"]) == (0, 1)
        server.signal(signal.SIGCONT)
        assert connection.read_answer().status == 200
    assert stack.count(user) == 1


def test_reads_go_on_while_a_send_waits_for_the_bus(serve, gateway_client, postgres_stack):
    """Publishing happens outside any lock: nobody who looks at the row waits for it."""
    server = serve(postgres_stack)
    user = gateway_client(server).new_user(1)
    server.stop()
    server = serve(postgres_stack, env={"QUIPU_FAILPOINTS": "gateway.reserved=stop"})
    sender = threading.Thread(target=server.ask, args=("POST", SEND, {"userId": user, "message": "x"}))
    sender.start()
    wait_until(server.stopped, "the process stops at the failpoint")
    postgres_stack.database.query("SELECT 1 FROM rate_limit_store WHERE user_id = %s FOR UPDATE NOWAIT", (user,))
    server.signal(signal.SIGCONT)
    sender.join()

"""The sender: requirement 5 of the seed. At least once, repeated only by a crash between printing and recording."""

import contextlib
import fcntl
import json
import os
import signal
import sys
import termios

import pytest

from engines.process import start
from harness.gateway import new_text, send_request, sms_sent, texts_sent
from harness.gateway_stacks import LONG_LEASE, PostgresStack, SHORT_LEASE, SqliteStack
from harness.http import ConnectionLost
from harness.old_schema import OldSchema
from harness.quipu import Quipu
from harness.sends import Sends
from harness.waiting import wait_until


def event(message, user="someone", **others):
    return json.dumps({"userId": user, "message": message, **others}).encode()


def wait_for(text, *servers):
    wait_until(lambda: text in texts_sent(*servers), f"{text} is printed")


@pytest.fixture(params=["sqlite", "postgres"])
def stack(request, tmp_path):
    """The sender works on a queue and a store; the cache is the gateway's."""
    if request.param == "sqlite":
        return SqliteStack(tmp_path, "memory")
    return PostgresStack(tmp_path, "none", request.getfixturevalue("database"))


@pytest.fixture
def queue(serve, stack):
    """A stack whose queue file exists and that no server uses."""
    serve(stack).stop()
    return stack


def test_r5_1_r5_2_what_is_queued_is_printed_with_its_user_and_message(serve, gateway_client, stack):
    server = serve(stack)
    gateway = gateway_client(server)
    user, texts = gateway.new_user(20), [new_text() for _ in range(20)]
    for text in texts:
        assert gateway.send(user, text).status == 200
    wait_for(texts[-1], server)
    assert sms_sent(server) == [(user, text) for text in texts]  # in the order they came
    wait_until(lambda: stack.recorded() == 20, "all are recorded")
    wait_until(lambda: server.metric("quipu_sender_sent_total") == 20, "all are counted")


def test_r4_1_an_event_has_what_the_contract_says(serve, gateway_client, stack):
    """Read from the queue of a process that was killed before its sender could take it."""
    server = serve(stack)
    user, text = gateway_client(server).new_user(1), new_text()
    server.stop()
    # a queue commits once at the start: the sender joins its group
    crashed = serve(stack, env={"QUIPU_FAILPOINTS": "bus.commit.after=kill@2"})
    with crashed.connect() as connection:
        connection.send(send_request(user, text))
        crashed.expect_to_be_killed()
    (value,) = stack.queued()
    body = json.loads(value)
    assert body.keys() == {"messageId", "userId", "message", "createdAt"}
    assert (body["userId"], body["message"]) == (user, text)


def test_a_restart_prints_nothing_again(serve, gateway_client, stack):
    server = serve(stack)
    gateway = gateway_client(server)
    user, text = gateway.new_user(5), new_text()
    gateway.send(user, text)
    wait_until(lambda: stack.recorded() == 1, "it is recorded")
    server.stop()
    again = serve(stack)
    gateway, last = gateway_client(again), new_text()
    gateway.send(user, last)
    wait_for(last, again)
    assert texts_sent(again) == [last]


def test_only_user_and_message_are_required_and_both_kinds_of_user_id_are_taken(serve, queue):
    queue.put_into_queue([event("one"), event("two", 1001),
                          event("three", messageId="m" * 128, extra=[1, {"a": None}])])
    server = serve(queue)
    wait_for("three", server)
    assert sms_sent(server) == [("someone", "one"), ("1001", "two"), ("someone", "three")]


def test_user_id_is_taken_for_userid(serve, queue):
    queue.put_into_queue([b'{"user_id":"someone","message":"one"}', b'{"user_id":1001,"message":"two"}'])
    server = serve(queue)
    wait_for("two", server)
    assert sms_sent(server) == [("someone", "one"), ("1001", "two")]


STRANGE = ["9" * 30, "-1e999", r'"\u0000"', '{"a":1,"a":2}', "[" * 100 + "]" * 100]


def test_members_that_nobody_reads_may_hold_anything(serve, queue):
    queue.put_into_queue([f'{{"x":{value},"userId":"u","message":"{number}","y":{value}}}'.encode()
                          for number, value in enumerate(STRANGE)])
    server = serve(queue)
    wait_for(str(len(STRANGE) - 1), server)
    assert sms_sent(server) == [("u", str(number)) for number in range(len(STRANGE))]


def test_messages_with_one_id_are_printed_once_those_without_each(serve, queue):
    queue.put_into_queue([event("same", messageId="m-1"), event("same", messageId="m-1"), event("none"), event("none")])
    server = serve(queue)
    wait_until(lambda: texts_sent(server).count("none") == 2, "both are printed")
    assert texts_sent(server) == ["same", "none", "none"]
    server.stop()
    queue.put_into_queue([event("same", messageId="m-1"), event("last")])
    again = serve(queue)
    wait_for("last", again)
    assert texts_sent(again) == ["last"]


def test_what_a_version_without_rows_has_sent_is_not_sent_again(serve, stack):
    """Its events may be delivered again after the upgrade; it knew them by sent_messages."""
    old = OldSchema("gateway.db", [("common", 1, "base"), ("common", 2, "operator_actions"),
                                   ("gateway", 1, "rate_limit_store"), ("gateway", 2, "modes_and_defaults")])
    old.make(stack)
    now = "now()" if stack.name == "postgres" else "strftime('%s', 'now') * 1000000"
    old.run(stack, [f"INSERT INTO sent_messages (message_id, sent_at) VALUES ('m-1', {now})"])
    serve(stack).stop()
    stack.put_into_queue([event("again", messageId="m-1"), event("new", messageId="m-2"), event("last")])
    server = serve(stack)
    wait_for("last", server)
    assert texts_sent(server) == ["new", "last"]
    wait_until(lambda: server.metric("quipu_sender_repeated_total") == 1, "the repeated one is counted")


MALFORMED = {
    "not JSON": b"Hello!",
    "empty": b"",
    "an array": b"[]",
    "cut off": b'{"userId":"a","message":',
    "no user": b'{"message":"x"}',
    "no message": b'{"userId":"a"}',
    "user of a wrong type": b'{"userId":{},"message":"x"}',
    "user with a fraction": b'{"userId":1.5,"message":"x"}',
    "blank user": b'{"userId":" ","message":"x"}',
    "message of a wrong type": b'{"userId":"a","message":5}',
    "null": b'{"userId":null,"message":null}',
    "id of 129 bytes": event("x", messageId="m" * 129),
    "user past int64": b'{"userId":99999999999999999999,"message":"x"}',
    "NUL in the user": rb'{"userId":"a\u0000","message":"x"}',
    "NUL in the message": rb'{"userId":"a","message":"x\u0000"}',
    "no UTF-8": b'{"userId":"a","message":"\xff\xfe"}',
    "control bytes": b"\x00\x1b[2J\n\r" * 10,
    "1 MB of garbage": bytes(range(1, 251)) * 4000,
}


def put_aside(server):
    return [json.loads(line) for line in server.log_text().splitlines() if "is put aside" in line]


def test_r5_3_malformed_messages_are_logged_kept_aside_and_skipped(serve, queue):
    last = new_text()
    queue.put_into_queue([*MALFORMED.values(), event(last)])
    server = serve(queue)
    wait_for(last, server)
    wait_until(lambda: server.metric("quipu_sender_malformed_total") == len(MALFORMED), "all are counted")
    assert texts_sent(server) == [last]
    wait_until(lambda: len(put_aside(server)) == len(MALFORMED), "all are logged")
    errors = put_aside(server)
    assert all(line["level"] == "error" and "sms-outbound" in line["message"] for line in errors)
    assert any("Hello!" in line["message"] for line in errors)
    assert all(len(line["message"]) < 1000 for line in errors)
    server.stop()
    assert queue.queued("sms-outbound.dlq") == list(MALFORMED.values())


def test_a_line_of_output_is_one_message_whatever_is_in_it(serve, queue):
    last = new_text()
    queue.put_into_queue([event("a\nSMS SENT userId=b message=forged\r\x1b[0m", "x\ny"), event(last)])
    server = serve(queue)
    wait_for(last, server)
    assert len(sms_sent(server)) == 2
    assert all(c == "\n" or c >= " " for c in server.output.read_text())


class Unread(Quipu):
    """A server whose standard output is a pipe that nobody reads once it has printed its address."""

    def _spawn(self):
        reading, writing = os.pipe()
        self.pipe = os.fdopen(reading, "rb")
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)  # one write fills it
        with os.fdopen(writing, "wb") as output, self.errors.open("ab") as errors:
            process = start(self._command(), env=self.environment, cwd=self.directory, stdout=output, stderr=errors)
        self.output.write_bytes(self.pipe.readline())
        return process

    def unread_bytes(self):
        """Returns how much waits in the pipe."""
        return int.from_bytes(fcntl.ioctl(self.pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_an_output_that_nobody_reads_holds_up_neither_sends_nor_the_end(binary, gateway_client, tmp_path):
    stack = SqliteStack(tmp_path, "memory")
    with contextlib.closing(Unread(binary, stack.arguments(), tmp_path / "unread")) as server:
        server.start()
        gateway = gateway_client(server)
        user = gateway.new_user(1000)
        for _ in range(20):
            assert gateway.send(user, "x" * 500).status == 200
        wait_until(lambda: server.unread_bytes() > 0, "the first line is printed")
        for _ in range(20):
            assert gateway.send(user, "x" * 500).status == 200
        assert stack.count(user) == 40
        server.stop()


def test_kill_9_between_printing_and_recording_loses_nothing_and_repeats_only_that(serve, gateway_client, stack):
    server = serve(stack)
    gateway = gateway_client(server)
    user, last = gateway.new_user(10), new_text()
    for _ in range(5):
        assert gateway.send(user).status == 200
    wait_until(lambda: stack.recorded() == 5, "they are recorded")
    server.stop()
    crashed = serve(stack, *SHORT_LEASE, env={"QUIPU_FAILPOINTS": "notify.sent=kill"})
    with contextlib.suppress(ConnectionLost):  # the sender may be faster than the answer
        gateway_client(crashed).send(user, last)
    crashed.expect_to_be_killed()
    assert texts_sent(crashed) == [last]
    again = serve(stack, *LONG_LEASE)
    wait_for(last, again)
    wait_until(lambda: stack.recorded() == 6, "it is recorded")
    assert texts_sent(again) == [last]


def test_kill_9_under_load_loses_no_message(serve, gateway_client, stack):
    """Each process keeps its claims, however slow the machine is, and follows the one before when that has lost them."""
    servers, rounds = [serve(stack, *LONG_LEASE)], []
    user = gateway_client(servers[0]).new_user(1000)
    for _ in range(2):
        with Sends(user, servers[-1], threads=4) as sends:
            sends.wait_under_way(30)
            servers[-1].kill()
            sends.join()
        rounds.append(sends)
        servers.append(serve(stack, *LONG_LEASE, env={"QUIPU_TEST_CLOCK_OFFSET": f"{2 * len(servers)}h"}))
    admitted = {message for sends in rounds for message in sends.admitted}
    wait_until(lambda: admitted <= set(texts_sent(*servers)), "all are printed, those of killed senders after their lease")
    for server in servers:
        assert len(texts_sent(server)) == len(set(texts_sent(server))), "no process repeats itself"


def test_a_store_that_is_away_delays_the_sender_and_repeats_nothing(serve, gateway_client, own_postgres, tmp_path):
    stack = PostgresStack(tmp_path, "none", own_postgres.create_database())
    serve(stack).stop()
    text = new_text()
    stack.put_into_queue([event(text, messageId="m-1")])
    own_postgres.stop()
    server = serve(stack, ready=False)
    wait_until(lambda: server.ask("GET", "/readyz").status == 503, "the store is down")
    own_postgres.start()
    wait_for(text, server)
    wait_until(lambda: stack.recorded() == 1, "it is recorded")
    assert texts_sent(server) == [text]


def test_a_store_that_fails_between_printing_and_recording_repeats_nothing(serve, own_postgres, tmp_path):
    stack = PostgresStack(tmp_path, "none", own_postgres.create_database())
    serve(stack).stop()
    text = new_text()
    stack.put_into_queue([event(text, messageId="m-1")])
    server = serve(stack, *LONG_LEASE, ready=False, env={"QUIPU_FAILPOINTS": "notify.sent=stop"})
    wait_until(server.stopped, "it is printed and not recorded")
    own_postgres.stop()
    own_postgres.start()
    server.signal(signal.SIGCONT)
    wait_until(lambda: stack.recorded() == 1, "it is recorded")
    assert texts_sent(server) == [text]

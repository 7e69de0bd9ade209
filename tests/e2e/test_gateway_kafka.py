"""Gateway and sender on Kafka, in one process and in two; python3-kafka reads and writes the topic."""

import contextlib
import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import quipu
from harness.counts import new_key
from harness.gateway import new_text, send_request, sms_sent, texts_sent
from harness.gateway_stacks import KafkaStack, LONG_LEASE, SHORT_LEASE
from harness.http import Connection, ConnectionLost, ask_all
from engines import shared
from harness.kafka import DLQ, Kafka
from harness.problems import assert_problem
from harness.sends import Sends
from harness.waiting import wait_until


@pytest.fixture(scope="module", autouse=True)
def kafka_is_built_in(binary, tmp_path_factory):
    done = quipu.run(binary, "serve", "--check-config", "--roles", "gateway", "--gateway-bus", "kafka://127.0.0.1:1",
                     cwd=tmp_path_factory.mktemp("check"))
    if done.returncode != 0:
        pytest.skip(f"this build has no Kafka: {done.stderr.strip()}")


@pytest.fixture(scope="module")
def broker():
    """Tests share it and its topic, and know their messages by user and text."""
    with shared.broker(Kafka) as running:
        yield running


@pytest.fixture
def failing_broker():
    """librdkafka's mock, which can be told to fail."""
    with Kafka(real=False) as running:
        yield running


@pytest.fixture(params=["none", "redis"])
def kafka_stack(request, tmp_path, database, broker):
    cache = request.getfixturevalue("own_redis").url if request.param == "redis" else "none"
    return KafkaStack(tmp_path, cache, database, broker)


@pytest.fixture
def plain_stack(tmp_path, database, broker):
    """Without a cache."""
    return KafkaStack(tmp_path, "none", database, broker)


def records_of(broker, user):
    return [record for record in broker.read() if record.key == user.encode()]


def wait_printed(text, *servers):
    wait_until(lambda: text in texts_sent(*servers), f"{text} is printed")


def test_r4_1_r13_2_the_whole_flow_and_what_python_reads_from_the_topic(serve, gateway_client, kafka_stack, broker):
    server = serve(kafka_stack)
    gateway, trace = gateway_client(server), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    user, text = gateway.new_user(2), new_text()
    answer = gateway.send(user, text, headers={"traceparent": trace})
    assert answer.status == 200
    assert len(gateway.use_up(user)) == 1
    record, _ = records_of(broker, user)
    body, headers = json.loads(record.value), dict(record.headers)
    assert body.keys() == {"messageId", "userId", "message", "createdAt"}
    assert (body["messageId"], body["userId"], body["message"]) == (answer.json()["messageId"], user, text)
    assert headers["event-id"].decode() == body["messageId"]
    assert headers["traceparent"].decode().split("-")[1] == trace.split("-")[1]
    assert len(broker.partitions()) == 4
    wait_printed(text, server)


def test_r5_1_gateway_and_sender_run_in_processes_of_their_own(serve, gateway_client, plain_stack):
    gateway_process = serve(plain_stack.beside("gateway"))
    sender_process = serve(plain_stack.beside("sender"))
    gateway, text = gateway_client(gateway_process), new_text()
    gateway.send(gateway.new_user(1), text)
    wait_printed(text, sender_process)
    assert sms_sent(gateway_process) == []


def test_of_ten_times_the_limit_from_two_processes_the_limit_is_on_the_topic(
    serve, gateway_client, kafka_stack, broker
):
    servers, limit = [serve(kafka_stack), serve(kafka_stack.beside())], 30
    user = gateway_client(servers[0]).new_user(limit)
    answers = ask_all((servers[number % 2].port, send_request(user)) for number in range(10 * limit))
    admitted = [answer.json()["messageId"] for answer in answers if answer.status == 200]
    assert len(admitted) == len(set(admitted)) == limit
    assert sum(answer.status == 429 for answer in answers) == 9 * limit
    assert sorted(json.loads(record.value)["messageId"] for record in records_of(broker, user)) == sorted(admitted)
    wait_until(lambda: sum(u == user for u, _ in sms_sent(*servers)) >= limit, "all are printed")
    assert sum(u == user for u, _ in sms_sent(*servers)) == limit


@pytest.mark.parametrize("point", ["commit.after", "gateway.reserved", "gateway.published"])
def test_a_keyed_send_retried_after_a_crash_is_one_event_id_and_one_answer(
    serve, gateway_client, tmp_path, database, broker, point
):
    stack = KafkaStack(tmp_path, "none", database, broker, "gateway")
    server = serve(stack)
    user, text, key = gateway_client(server).new_user(2), new_text(), new_key()
    server.stop()
    crashed = serve(stack, env={"QUIPU_FAILPOINTS": f"{point}=kill"})
    with pytest.raises(ConnectionLost):
        gateway_client(crashed).send(user, text, key=key)
    crashed.expect_to_be_killed()
    gateway = gateway_client(serve(stack, env={"QUIPU_TEST_CLOCK_OFFSET": "6s"}))  # the dead owner's lease is over
    first, second = (gateway.send(user, text, key=key) for _ in range(2))
    assert first.status == 200
    assert (second.body, second.header("idempotent-replayed")) == (first.body, "true")
    assert {json.loads(record.value)["messageId"] for record in records_of(broker, user)} == {
        first.json()["messageId"]
    }
    sender = serve(stack.beside("sender"))
    wait_printed(text, sender)
    gateway.send(user, last := new_text())
    wait_printed(last, sender)
    assert texts_sent(sender).count(text) == 1


def test_kill_9_of_the_gateway_under_load_leaves_every_200_on_the_topic_and_no_more_than_the_limit(
    serve, gateway_client, plain_stack, broker
):
    stack, limit = plain_stack.beside("gateway"), 200
    server = serve(stack)
    user = gateway_client(server).new_user(limit)
    with Sends(user, server, threads=6) as first:
        first.wait_under_way(30)
        server.kill()
        first.join()
    with Sends(user, serve(stack), threads=4, refusals=5) as second:
        second.finish()
    on_topic = {json.loads(record.value)["messageId"] for record in records_of(broker, user)}
    assert set(first.message_ids() + second.message_ids()) <= on_topic
    assert len(on_topic) <= limit


MALFORMED = [b"Hello!", b"[]", b'{"message":"x"}', b'{"userId":"a"}', b'{"userId":{},"message":5}',
             b"\xff\x00\x1b" * 300, bytes(range(250)) * 3600]


def put_aside(server):
    return [json.loads(line) for line in server.log_text().splitlines() if "is put aside" in line]


def test_r5_3_malformed_messages_are_logged_copied_to_the_dlq_and_skipped(serve, plain_stack, broker):
    server, last = serve(plain_stack), new_text()
    before = len(broker.read(DLQ))
    broker.write(*MALFORMED, json.dumps({"userId": 7, "message": last}).encode(), key=b"one-partition")
    wait_printed(last, server)
    wait_until(lambda: server.metric("quipu_sender_malformed_total") == len(MALFORMED), "all are counted")
    assert [record.value for record in broker.read(DLQ)][before:] == MALFORMED
    wait_until(lambda: len(put_aside(server)) == len(MALFORMED), "all are logged")
    assert all(line["level"] == "error" for line in put_aside(server))
    assert ("7", last) in sms_sent(server)


def test_a_foreign_message_without_an_id_is_sent_once(serve, plain_stack, broker):
    server, text = serve(plain_stack), new_text()
    broker.write(json.dumps({"userId": "someone", "message": text}).encode())
    wait_printed(text, server)
    server.stop()
    again, last = serve(plain_stack), new_text()
    broker.write(json.dumps({"userId": "someone", "message": last}).encode())
    wait_printed(last, again)
    assert texts_sent(server, again).count(text) == 1


@pytest.mark.full
def test_a_locked_table_keeps_no_member_out_of_the_group_and_loses_and_repeats_nothing(
    serve, plain_stack, database, broker
):
    """Kafka lets nobody join before every member has come back to it, and waits five minutes for one that does not."""
    first, texts = serve(plain_stack), [new_text() for _ in range(5)]
    first.wait_all_up()
    with database.locked_table("outbound_messages") as release:
        broker.write(*(json.dumps({"userId": "someone", "message": text}).encode() for text in texts))
        wait_until(lambda: "cannot be applied, although the store is up" in first.log_text(), "the log says why")
        second = serve(plain_stack.beside("sender"))
        wait_until(lambda: broker.group("sender-service") == ("Stable", 2), "both are members")
        release()
    last = new_text()
    broker.write(json.dumps({"userId": "someone", "message": last}).encode())
    for text in [*texts, last]:
        wait_printed(text, first, second)
    first.stop()
    second.stop()
    again, after = serve(plain_stack), new_text()
    broker.write(json.dumps({"userId": "someone", "message": after}).encode())
    wait_printed(after, again)
    sent = texts_sent(first, second, again)
    assert [sent.count(text) for text in [*texts, last, after]] == [1] * 7


def dependencies(server):
    answer = server.ask("GET", "/readyz")
    return answer.status, {entry["name"]: entry["status"] for entry in answer.json()["dependencies"]}


@pytest.mark.parametrize("cache", ["none", "redis"])
def test_r4_2_r11_6_2_without_a_broker_it_is_a_503_at_once_and_back_again_it_works(
    serve, gateway_client, tmp_path, database, failing_broker, request, cache
):
    """Nothing is counted, neither in the store nor in Redis."""
    redis = request.getfixturevalue("own_redis") if cache == "redis" else None
    stack = KafkaStack(tmp_path, redis.url if redis else "none", database, failing_broker)
    stack.options = "?message.timeout.ms=3600000"
    server = serve(stack, "--deadline", "1h")
    gateway = gateway_client(server)
    user = gateway.new_user(10)
    assert gateway.send(user).status == 200
    failing_broker.stop()
    wait_until(lambda: dependencies(server)[1]["gateway-bus"] == "down", "/readyz names the bus")
    row = stack.row(user)
    counted = int(redis.hash(user)["currentCount"]) if redis else None
    for _ in range(3):  # at once: what would end a wait for the broker lasts an hour
        assert_problem(gateway.send(user), 503, "BUS_UNAVAILABLE")
    assert stack.row(user) == row
    if redis:
        assert int(redis.hash(user)["currentCount"]) == counted
    failing_broker.start()
    wait_until(lambda: dependencies(server)[1]["gateway-bus"] == "up", "the bus is up again")
    assert len(gateway.use_up(user)) == 9


def overtake(gateway, sender, server, broker, used_up):
    """Whether a configuration and a refusal were answered before a send for which the broker had to be thawed."""
    user = gateway.new_user(10)
    with broker.frozen(), ThreadPoolExecutor() as pool:
        sent = pool.submit(sender.send, user)
        wait_until(lambda: server.metric("quipu_effects_under_way") or sent.done(),
                   "the send is on its way")
        gateway.new_user(1)
        refused = gateway.send(used_up)
        assert refused.status in (429, 503)  # 503 if the bus is known to be down by now
        first = refused.status == 429 and not sent.done()
        broker.thaw()
        assert sent.result().status in (200, 503)
    wait_until(lambda: dependencies(server)[1]["gateway-bus"] == "up", "the bus is up")
    return first


def test_while_the_broker_hangs_configurations_and_refusals_of_the_same_lane_are_answered(
    serve, gateway_client, tmp_path, database, failing_broker
):
    """A send is given up after three seconds, which a busy machine may need for all of this: then it tries again."""
    server = serve(KafkaStack(tmp_path, "none", database, failing_broker, "gateway"), "--lanes", "1")
    gateway, sender = gateway_client(server), gateway_client(server)
    used_up = gateway.new_user(1)
    assert gateway.send(used_up).status == 200
    wait_until(lambda: overtake(gateway, sender, server, failing_broker, used_up), "they overtake the send")


def test_the_broker_stopped_under_load_never_admits_more_than_the_limit(
    serve, gateway_client, tmp_path, database, failing_broker
):
    stack, limit = KafkaStack(tmp_path, "none", database, failing_broker), 1500
    server = serve(stack)
    user = gateway_client(server).new_user(limit)
    with Sends(user, server, threads=4, refusals=5) as sends:
        sends.wait_under_way(30)
        failing_broker.stop()
        sends.wait_failed(10)
        failing_broker.start()
        sends.finish()
    assert set(sends.failed) <= {"BUS_UNAVAILABLE", "OUTCOME_UNKNOWN", "OVERLOADED"}
    assert limit - len(sends.unknown) <= len(sends.admitted) <= limit
    assert stack.row(user)["current_count"] == len(sends.admitted)


def test_a_process_ends_although_kafka_does_not_answer(serve, tmp_path, database, failing_broker, gateway_client):
    """The sender's commit of its offsets is under way, for which librdkafka itself would wait."""
    stack = KafkaStack(tmp_path, "none", database, failing_broker)
    server = serve(stack)
    user = gateway_client(server).new_user(1)
    server.stop()
    server = serve(stack, env={"QUIPU_FAILPOINTS": "intake.committed=stop"})
    with Connection(server.port) as connection:
        connection.send(send_request(user))
        wait_until(server.stopped, "the sender has taken the message")
        with failing_broker.frozen():
            server.signal(signal.SIGCONT)
            server.stop()
    assert stack.recorded() == 1


def test_kill_9_of_the_sender_between_printing_and_recording_loses_nothing_and_repeats_only_that(
    serve, gateway_client, tmp_path, database, broker
):
    """The last of the file: the broker misses the dead member of the group only after its session has ended."""
    stack = KafkaStack(tmp_path, "none", database, broker)
    stack.options = "?session.timeout.ms=2000&heartbeat.interval.ms=500"
    server = serve(stack)
    gateway = gateway_client(server)
    user, first, last = gateway.new_user(10), new_text(), new_text()
    gateway.send(user, first)
    wait_until(lambda: stack.recorded() >= 1, "it is recorded")
    server.stop()
    crashed = serve(stack, *SHORT_LEASE, env={"QUIPU_FAILPOINTS": "notify.sent=kill"})
    with contextlib.suppress(ConnectionLost):  # the sender may be faster than the answer
        gateway_client(crashed).send(user, last)
    crashed.wait_exit()
    crashed.expect_to_be_killed()
    again = serve(stack, *LONG_LEASE)
    wait_printed(last, again)
    assert texts_sent(server, crashed, again).count(first) == 1
    assert texts_sent(crashed).count(last) == texts_sent(again).count(last) == 1

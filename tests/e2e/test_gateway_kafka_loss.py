"""Kafka loses the end of its log and gives the offsets of what is gone to new messages."""

import contextlib
import json
import time
import uuid

import pytest

from engines.kafka_log import last_segments, truncate
from engines.server import Unavailable
from harness.gateway import new_text, texts_sent
from harness.gateway_stacks import KafkaStack
from harness.kafka import Kafka, TOPIC, kafka
from harness.waiting import HANG_S, wait_until

GROUP = "sender-service"
NAMESPACE = uuid.UUID("5b1d0c6e-8a42-4f19-9c3d-71e62fa0d458")  # of the ids that Quipu derives from names
DAY_MS = 24 * 3600 * 1000


def real_kafka():
    """The mock has no log."""
    try:
        return Kafka(real=True)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def broker():
    with real_kafka() as running:
        yield running


@pytest.fixture
def empty_broker():
    with real_kafka() as running:
        yield running


@pytest.fixture
def stack(tmp_path, database, broker):
    found = KafkaStack(tmp_path, "none", database, broker, "gateway")
    found.options = "?session.timeout.ms=20000"  # a frozen sender stays in its group
    return found


@pytest.fixture
def sender_stack(stack):
    found = stack.beside("sender")
    found.options = stack.options
    return found


class User:
    """Sends one message after another, to one partition."""

    def __init__(self, gateway):
        self._gateway = gateway
        self._name = gateway.new_user(1000)

    def send(self, count):
        texts = [new_text() for _ in range(count)]
        for text in texts:
            wait_until(lambda text=text: self._gateway.send(self._name, text).status == 200, "Kafka takes it")
        return texts


def everything_is_committed(broker):
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.address, group_id=GROUP, enable_auto_commit=False)
    with contextlib.closing(consumer):
        partitions = [kafka.TopicPartition(TOPIC, number) for number in consumer.partitions_for_topic(TOPIC)]
        ends = consumer.end_offsets(partitions)
        return all((consumer.committed(partition) or 0) == end for partition, end in ends.items())


def wait_sent(texts, *servers):
    wait_until(lambda: set(texts) <= set(texts_sent(*servers)), "all are sent")


def wait_committed(broker):
    wait_until(lambda: everything_is_committed(broker), "all are committed")


def sizes(broker):
    return {log: log.stat().st_size for log in last_segments(broker.data, TOPIC)}


def lose_what_is_behind(broker, ends):
    """Returns how many messages are gone."""
    broker.kill()
    gone = sum(len(truncate(log, end)) for log, end in ends.items())
    broker.start()
    return gone


def assert_sent_once(texts, *servers):
    sent = texts_sent(*servers)
    assert [sent.count(text) for text in texts] == [1] * len(texts)


def test_a_sender_that_starts_later_sends_what_has_the_offsets_of_lost_messages(
    serve, gateway_client, stack, sender_stack, broker
):
    user, sender = User(gateway_client(serve(stack))), serve(sender_stack)
    old = user.send(2)
    ends = sizes(broker)
    old += user.send(3)
    wait_sent(old, sender)
    wait_committed(broker)
    sender.stop()
    assert lose_what_is_behind(broker, ends) == 3
    new = user.send(5)
    again = serve(sender_stack)
    wait_sent(new, again)
    wait_committed(broker)
    assert_sent_once(old + new, sender, again)
    assert again.metric("quipu_sender_repeated_total") > 0


@pytest.mark.parametrize("published", [*(pytest.param(count, marks=pytest.mark.full) for count in (2, 3)), 5])
def test_a_sender_that_runs_sends_what_has_the_offsets_of_lost_messages(
    serve, gateway_client, stack, sender_stack, broker, published
):
    """The log then ends before, at and behind the place where the sender goes on."""
    user, sender = User(gateway_client(serve(stack))), serve(sender_stack)
    old = user.send(2)
    ends = sizes(broker)
    old += user.send(3)
    wait_sent(old, sender)
    wait_committed(broker)
    with sender.frozen():
        assert lose_what_is_behind(broker, ends) == 3
        new = user.send(published)
    wait_sent(new, sender)
    last = user.send(1)
    wait_sent(last, sender)
    assert_sent_once(old + new + last, sender)


def test_without_a_loss_nothing_is_read_twice(serve, gateway_client, stack, sender_stack, broker):
    user, sender = User(gateway_client(serve(stack))), serve(sender_stack)
    texts = user.send(3)
    wait_sent(texts, sender)
    wait_committed(broker)
    assert lose_what_is_behind(broker, {}) == 0
    texts += user.send(3)
    wait_sent(texts, sender)
    wait_committed(broker)
    sender.stop()
    again = serve(sender_stack)
    texts += user.send(3)
    wait_sent(texts, sender, again)
    wait_committed(broker)
    assert_sent_once(texts, sender, again)
    assert again.metric("quipu_sender_repeated_total") == 0
    assert "has lost the end" not in sender.log_text() + again.log_text()


def put(broker, texts, **more):
    """Puts messages on one partition as another program does, without a messageId; returns their positions."""
    with contextlib.closing(kafka.KafkaProducer(bootstrap_servers=broker.address, acks="all")) as producer:
        sent = [producer.send(TOPIC, key=b"u", value=json.dumps({"userId": "u", "message": text}).encode(), **more)
                for text in texts]
        records = [one.get(HANG_S) for one in sent]
    return [f"{TOPIC}/{record.partition}/{record.offset}" for record in records]


def commit(broker, place):
    """Commits for the group, which has no member now, without the name of a message, as an operator does.
    `place` turns the end of a partition into the offset."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.address, group_id=GROUP, enable_auto_commit=False)
    with contextlib.closing(consumer):
        partitions = [kafka.TopicPartition(TOPIC, number) for number in consumer.partitions_for_topic(TOPIC)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        consumer.commit({partition: kafka.OffsetAndMetadata(place(end), "") for partition, end in ends.items()})


def test_messages_without_an_id_are_sent_at_the_offsets_of_lost_ones(serve, stack, sender_stack, broker):
    gateway, sender = serve(stack), serve(sender_stack)
    gateway.wait_all_up()
    old = [new_text() for _ in range(5)]
    kept = put(broker, old[:2])
    ends = sizes(broker)
    lost = put(broker, old[2:])
    wait_sent(old, sender)
    wait_committed(broker)
    sender.stop()
    assert lose_what_is_behind(broker, ends) == 3
    new = [new_text() for _ in range(5)]
    assert put(broker, new)[:3] == lost
    again = serve(sender_stack)
    wait_sent(new, again)
    wait_committed(broker)
    assert_sent_once(old + new, sender, again)
    assert again.metric("quipu_sender_repeated_total") >= len(kept)


def test_messages_without_an_id_that_an_earlier_version_has_taken_are_not_sent_again(
    serve, stack, sender_stack, broker, database
):
    """It knew them by their position."""
    gateway, sender = serve(stack), serve(sender_stack)
    gateway.wait_all_up()
    texts = [new_text() for _ in range(2)]
    taken, erased = put(broker, texts)
    wait_sent(texts, sender)
    wait_committed(broker)
    sender.stop()
    database.query("UPDATE outbound_messages SET id = %s::uuid, message_id = %s "
                   "WHERE split_part(message_id, '@', 1) = %s RETURNING 1",
                   (str(uuid.uuid5(NAMESPACE, f"{TOPIC}\0{taken}")), taken, taken))
    database.query("WITH gone AS (DELETE FROM outbound_messages WHERE split_part(message_id, '@', 1) = %s RETURNING 1) "
                   "INSERT INTO sent_messages (message_id, sent_at) SELECT %s, now() FROM gone RETURNING 1",
                   (erased, erased))
    commit(broker, lambda end: 0)
    again = serve(sender_stack)
    last = [new_text()]
    put(broker, last)
    wait_sent(last, again)
    assert_sent_once(texts + last, sender, again)


@pytest.mark.full
def test_after_a_loss_at_an_unknown_time_nothing_is_read_that_cannot_be_recognised(
    empty_broker, serve, tmp_path, database
):
    stack = KafkaStack(tmp_path, "none", database, empty_broker)
    server = serve(stack)
    server.wait_all_up()
    ancient, old = [new_text()], [new_text() for _ in range(2)]
    put(empty_broker, ancient, timestamp_ms=int(time.time() * 1000) - 40 * DAY_MS)
    put(empty_broker, old[:1])
    ends = sizes(empty_broker)
    put(empty_broker, old[1:])
    wait_sent(ancient + old, server)
    wait_committed(empty_broker)
    server.stop()
    database.query("DELETE FROM outbound_messages WHERE position(%s IN convert_from(payload, 'UTF8')) > 0 RETURNING 1",
                   (f'"{ancient[0]}"',))  # records are kept for 30 days
    commit(empty_broker, lambda end: end)
    assert lose_what_is_behind(empty_broker, ends) == 1
    again = serve(stack)
    wait_until(lambda: "has lost the end" in again.log_text(), "the loss is noticed")
    new = [new_text()]
    put(empty_broker, new)
    wait_sent(new, again)
    assert_sent_once(ancient + old + new, server, again)

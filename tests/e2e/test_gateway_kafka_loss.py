"""Kafka loses the end of its log and gives the offsets of what is gone to new messages."""

import contextlib

import pytest

from engines.kafka_log import last_segments, truncate
from engines.server import Unavailable
from harness.gateway import new_text, texts_sent
from harness.gateway_stacks import KafkaStack
from harness.kafka import Kafka, TOPIC, kafka
from harness.waiting import wait_until

GROUP = "sender-service"


@pytest.fixture(scope="module")
def broker():
    """A real one, because the mock has no log."""
    try:
        running = Kafka(real=True)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with running:
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

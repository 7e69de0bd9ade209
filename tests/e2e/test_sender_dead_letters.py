"""Messages that the sender cannot read and whose copy would not fit into the bus: the copy is shortened to what fits,
and the messages behind it are sent."""

import json

import pika
import pytest

from harness.available import available
from harness.gateway import new_text, texts_sent
from harness.nats import Nats
from harness.rabbitmq import Host
from harness.waiting import wait_until

CHANNEL, LETTERS, ERRORS = "sms-outbound", "sms-outbound.dlq", "sender-service_error"
STREAM, STREAM_OF_LETTERS = "SMS_OUTBOUND", "SMS_OUTBOUND_DLQ"
KEPT = 64 * 1024
MIB = 1024 * 1024
PAYLOAD_MAX = 4 * MIB  # of the private NATS, see engines/nats.py


class Stack:
    def __init__(self, directory, bus):
        self._arguments = ["--roles", "sender", "--data", str(directory), "--gateway-bus", bus.url]

    def arguments(self):
        return self._arguments


def event(text):
    return json.dumps({"userId": "someone", "message": text}).encode()


def wait_until_passed(server, text):
    """Waits until a message behind the unreadable one is sent, and the unreadable one is counted and logged once."""
    wait_until(lambda: text in texts_sent(server), "the message behind it is sent")
    wait_until(lambda: server.metric("quipu_sender_malformed_total") == 1, "it is counted")
    wait_until(lambda: "is put aside" in server.log_text(), "it is logged")
    assert server.log_text().count(f"is too large for {LETTERS}") == 1


@pytest.fixture
def host(rabbitmq_server):
    return Host.new(rabbitmq_server)


def publish(host, body, headers=None):
    with host.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish(CHANNEL, CHANNEL, body, pika.BasicProperties(headers=headers, delivery_mode=2), mandatory=True)


UNFIT_ON_RABBITMQ = {
    "a key that leaves no room for the position": (b"Hello!", {"key": "k" * 130_000}),
    "a body larger than a producer's": (b"x" * (64 * MIB + 1), None),
}


@pytest.mark.parametrize("body,headers", UNFIT_ON_RABBITMQ.values(), ids=UNFIT_ON_RABBITMQ)
def test_on_rabbitmq_a_copy_that_does_not_fit_is_shortened(serve, host, tmp_path, body, headers):
    server, text = serve(Stack(tmp_path / "data", host)), new_text()
    wait_until(lambda: host.depth(LETTERS) is not None, "the queues exist")
    publish(host, body, headers)
    publish(host, event(text))
    wait_until_passed(server, text)
    ((_, properties, copy),) = host.take(LETTERS)
    assert properties.headers.keys() == {"position", "truncated"}
    assert (copy, properties.headers["truncated"]) == (body[:KEPT], str(len(body)))
    ((_, _, whole),) = host.take(ERRORS)
    assert whole == body
    host.wait_empty("sender-service")


@pytest.mark.parametrize("key", [None, "k" * 60_000], ids=["no key", "a long key"])
def test_on_nats_a_copy_that_does_not_fit_is_shortened(serve, nats, tmp_path, key):
    server, text = serve(Stack(tmp_path / "data", nats)), new_text()
    head = {"key": key} if key else {}
    room = sum(len(f"{name}: {value}\r\n") for name, value in head.items()) + (len("NATS/1.0\r\n\r\n") if head else 0)
    body = b"x" * (PAYLOAD_MAX - room)
    nats.put(CHANNEL, body, head)
    nats.put(CHANNEL, event(text))
    wait_until_passed(server, text)
    (copy,) = nats.messages(STREAM_OF_LETTERS)
    assert (copy.payload, copy.headers["truncated"]) == (body[:KEPT], str(len(body)))
    assert copy.headers["position"] == f"{STREAM}/1"
    assert "key" not in copy.headers
    wait_until(lambda: nats.consumer("sender-service", STREAM)["num_ack_pending"] == 0, "both are acknowledged")


def test_on_nats_a_key_that_becomes_too_long_is_left_out(serve, nats, tmp_path):
    """The copy's key is encoded, because it has a tab. JetStream takes at most 64 KiB of headers."""
    server, text = serve(Stack(tmp_path / "data", nats)), new_text()
    nats.put(CHANNEL, b"Hello!", {"key": "a\t" + "é" * 15_000})
    nats.put(CHANNEL, event(text))
    wait_until_passed(server, text)
    (copy,) = nats.messages(STREAM_OF_LETTERS)
    assert (copy.payload, copy.headers["truncated"]) == (b"Hello!", "6")


def test_on_nats_a_copy_is_shortened_until_it_fits(serve, tmp_path):
    """The largest payload is smaller than what a shortened copy usually keeps."""
    with available(lambda: Nats("max_payload: 32768\n")) as nats:
        server, text, body = serve(Stack(tmp_path / "data", nats)), new_text(), b"x" * 32768
        nats.put(CHANNEL, body)
        nats.put(CHANNEL, event(text))
        wait_until_passed(server, text)
        (copy,) = nats.messages(STREAM_OF_LETTERS)
        assert (copy.payload, copy.headers["truncated"]) == (body[:16384], "32768")
        server.stop()

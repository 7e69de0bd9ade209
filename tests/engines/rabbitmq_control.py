#!/usr/bin/python3
"""A private RabbitMQ under the control of the program that started this script (tests/contract/rabbitmq_server.c).

Prints "ok URL TLS-URL", then does what each line of standard input says and answers it by one that begins with "ok" or
"error":

    start, stop, kill, freeze, thaw          the broker; stop and kill keep its data
    alarm on, alarm off                      its memory alarm, under which it takes no messages
    drop                                     closes every connection that it has
    limit NAME COUNT                         a queue refuses messages beyond that many
    make-queue NAME transient|durable        this and what follows uses an independent client, pika
    make-exchange NAME TYPE
    delete-queue NAME, delete-exchange NAME
    count NAME                               how many messages wait in a queue: "ok 3"
    publish EXCHANGE KEY BODY                a message that has a body and nothing else ("-": the default exchange)
    odd EXCHANGE KEY BODY                    one with headers of many kinds and properties that a copy must not keep
    wide EXCHANGE KEY SIZE                   one whose properties are as long as they can be, with a header of that size
    get NAME                                 takes a message: "ok {json}"

Exits with 77 if RabbitMQ cannot be had.
"""

import contextlib
import datetime
import json
import pathlib
import signal
import sys

import pika

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from engines.rabbitmq import RabbitMQ  # noqa: E402  (its folder is named above)
from engines.server import Unavailable  # noqa: E402

SKIPPED = 77


class Control:
    def __init__(self, server):
        self._server = server

    def obey(self, line):
        name, *arguments = line.split(" ", 3)
        handler = getattr(self, "do_" + name.replace("-", "_"), None)
        if handler is None:
            return f"error nobody knows {name}"
        try:
            result = handler(*arguments)
            return "ok" if result is None else f"ok {result}"
        except Exception as problem:  # pylint: disable=broad-except # the program that asked decides what it means
            return f"error {type(problem).__name__} {problem}".replace("\n", " ")

    def do_start(self):
        self._server.start()

    def do_stop(self):
        self._server.stop()

    def do_kill(self):
        self._server.kill()

    def do_freeze(self):
        self._server.freeze()

    def do_thaw(self):
        self._server.thaw()

    def do_alarm(self, how):
        self._server.alarm(how == "on")

    def do_drop(self):
        self._server.ctl("close_all_connections", "a test says so")

    def do_limit(self, name, count):
        policy = {"max-length": int(count), "overflow": "reject-publish"}
        self._server.ctl("set_policy", "--apply-to", "queues", f"limit-{name}", f"^{name}$", json.dumps(policy))

    @contextlib.contextmanager
    def _channel(self):
        connection = pika.BlockingConnection(pika.URLParameters(self._server.url + "/%2F"))
        try:
            yield connection.channel()
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()

    def do_make_queue(self, name, kind):
        with self._channel() as channel:
            channel.queue_declare(name, durable=kind == "durable")

    def do_make_exchange(self, name, kind):
        with self._channel() as channel:
            channel.exchange_declare(name, kind, durable=True)

    def do_delete_queue(self, name):
        with self._channel() as channel:
            channel.queue_delete(name)

    def do_delete_exchange(self, name):
        with self._channel() as channel:
            channel.exchange_delete(name)

    def do_count(self, name):
        with self._channel() as channel:
            return channel.queue_declare(name, passive=True).method.message_count

    def do_publish(self, exchange, key, body):
        self._publish(exchange, key, body, None)

    def _publish(self, exchange, key, body, properties):
        with self._channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("" if exchange == "-" else exchange, key, body.encode(), properties)

    def do_odd(self, exchange, key, body):
        headers = {"text": "äöü", "number": -5, "big": 1 << 40, "yes": True, "none": None, "list": [1, "two"],
                   "table": {"inner": 1}, "bytes": b"\x00\xff", "CC": ["elsewhere"], "MT-Reason": "an older one",
                   "when": datetime.datetime(2024, 5, 6, 7, 8, 9)}
        properties = pika.BasicProperties(
            content_type="application/vnd.masstransit+json", content_encoding="utf-8", headers=headers,
            delivery_mode=1, priority=3, correlation_id="correlation", reply_to="reply", expiration="600000",
            message_id="odd-1", timestamp=1700000000, type="kind", user_id="guest", app_id="app")
        self._publish(exchange, key, body, properties)

    def do_wide(self, exchange, key, size):
        words = ("content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type", "app_id",
                 "cluster_id")
        properties = pika.BasicProperties(headers={"pad": "x" * int(size)}, delivery_mode=2, priority=3,
                                          timestamp=1700000000, **{word: "w" * 255 for word in words})
        self._publish(exchange, key, "wide", properties)

    def do_get(self, name):
        with self._channel() as channel:
            method, properties, body = channel.basic_get(name, auto_ack=True)
            if method is None:
                raise LookupError("the queue is empty")
            fields = {key: value for key, value in vars(properties).items() if value is not None}
            return json.dumps({**fields, "body": body.decode(errors="replace"), "routing_key": method.routing_key},
                              default=str, ensure_ascii=True)


def main():
    # Being ended must end the server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        server = RabbitMQ()
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    with server:
        commands = Control(server)
        print(f"ok {server.url} {server.tls_url}", flush=True)
        for line in sys.stdin:
            print(commands.obey(line.strip()), flush=True)
    return 0


sys.exit(main())

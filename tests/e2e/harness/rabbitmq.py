"""Virtual hosts of RabbitMQ, and pika to look into them from outside."""

import contextlib
import json

import pika

from .waiting import wait_until

EXCHANGE = "message-events"
NEW_KEY, READ_KEY = "message.new", "message.read"
NEW_QUEUE, READ_QUEUE = "counter-service-new-message", "counter-service-message-read"
MASSTRANSIT = "application/vnd.masstransit+json"


class Host:
    """A virtual host, seen by a client that is not Quipu."""

    def __init__(self, server, name):
        self.server = server
        self.name = name

    @classmethod
    def new(cls, server):
        """Creates a fresh one."""
        return cls(server, server.new_host())

    @property
    def url(self):
        return f"{self.server.url}/{self.name}"

    @contextlib.contextmanager
    def channel(self):
        parameters = pika.ConnectionParameters("127.0.0.1", self.server.port, self.name)
        with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
            yield connection.channel()

    def publish(self, *events, timestamp=None):
        """Publishes (routing key, body) and returns when the broker has all of them. `timestamp` is a property of
        AMQP, in seconds."""
        with self.channel() as channel:
            channel.confirm_delivery()
            for key, body in events:
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                properties = pika.BasicProperties(content_type=MASSTRANSIT, delivery_mode=2, timestamp=timestamp)
                channel.basic_publish(EXCHANGE, key, body, properties, mandatory=True)

    def put_into(self, queue, bodies):
        """Publishes straight into a queue, as a manual redelivery would."""
        with self.channel() as channel:
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", queue, json.dumps(body).encode(), mandatory=True)

    def watch(self, name="watcher"):
        """Creates a queue that gets a copy of every event from now on."""
        with self.channel() as channel:
            channel.exchange_declare(EXCHANGE, passive=True)
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, EXCHANGE, "#")
        return name

    def take(self, queue, count=1):
        """Waits for that many messages of a queue and takes them: [(method, properties, body), …]."""
        taken = []
        wait_until(lambda: self.depth(queue) is not None, f"there is a queue {queue}")
        with self.channel() as channel:

            def enough():
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is not None:
                    taken.append((method, properties, body))
                return len(taken) >= count

            wait_until(enough, f"{count} messages in {queue}")
        return taken

    def depth(self, queue):
        """Returns how many messages wait in a queue, or None if there is no such queue."""
        try:
            with self.channel() as channel:
                return channel.queue_declare(queue, passive=True).method.message_count
        except pika.exceptions.ChannelClosedByBroker:
            return None

    def consumers(self, queue):
        """Returns how many consumers a queue has, which must exist."""
        with self.channel() as channel:
            return channel.queue_declare(queue, passive=True).method.consumer_count

    def wait_empty(self, *queues):
        for queue in queues or (NEW_QUEUE, READ_QUEUE):
            wait_until(lambda name=queue: not self.depth(name), f"{queue} is empty")

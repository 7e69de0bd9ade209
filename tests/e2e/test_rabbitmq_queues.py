"""On RabbitMQ every message lies in the queue of those who consume it, and in no other, whoever starts first."""

from harness.entitlements import new_user
from harness.rabbitmq import Host
from harness.waiting import wait_until


class Folder:
    def __init__(self, path):
        self._path = path

    def arguments(self):
        return ["--data", str(self._path)]


def test_messages_wait_for_a_sender_that_starts_later(serve, database, rabbitmq_server, tmp_path):
    host = Host.new(rabbitmq_server)
    shared = ["--store", database.url, "--gateway-bus", host.url, "--cache", "none"]
    gateway = serve(Folder(tmp_path / "gateway"), "--roles", "gateway", *shared)
    gateway.wait_all_up()
    assert gateway.ask("POST", "/api/config", {"userId": 1, "rateLimit": 5, "timeWindow": 1}).status == 200
    assert gateway.ask("POST", "/api/send", {"userId": 1, "message": "early"}).status == 200
    assert (host.depth("sender-service"), host.depth("sms-outbound")) == (1, None)
    sender = serve(Folder(tmp_path / "sender"), "--roles", "sender", *shared)
    wait_until(lambda: "message=early" in sender.output.read_text(), "the message is sent")
    host.wait_empty("sender-service")


def test_events_wait_for_notifications_that_start_later(
    serve, database, rabbitmq_server, tmp_path, entitlements_client
):
    host, user = Host.new(rabbitmq_server), new_user()
    shared = ["--store", database.url, "--entitlements-bus", host.url]
    server = serve(Folder(tmp_path / "first"), "--roles", "entitlements", *shared)
    server.wait_all_up()
    entitlements_client(server).grant(user)
    wait_until(lambda: host.depth("notifications") == 1, "the event is in the queue")
    assert host.depth("entitlements.events") is None
    entitlements_client(serve(Folder(tmp_path / "second"), "--roles", "entitlements,notifications", *shared)).wait_sent(user)
    host.wait_empty("notifications")

"""A private RabbitMQ cluster of three nodes, which find each other when they first start."""

import contextlib

from .rabbitmq import RabbitMQ

SIZE = 3
COOKIE = "quipu-tests"
FIND = "cluster_formation.peer_discovery_backend = classic_config\n"
PEER = "cluster_formation.classic_config.nodes.{number} = {name}\n"


class Node(RabbitMQ):
    """One of several nodes with the same epmd and the same cookie."""

    def __init__(self, first=None):
        self._first = first
        super().__init__()
        cookie = self.directory / "home" / ".erlang.cookie"
        cookie.write_text(COOKIE)
        cookie.chmod(0o400)
        if first:
            self.environment["ERL_EPMD_PORT"] = first.environment["ERL_EPMD_PORT"]
            self._epmd = first  # it runs already; see close()

    @property
    def node_name(self):
        return self.environment["RABBITMQ_NODENAME"]

    def know(self, nodes):
        with (self.directory / "rabbitmq.conf").open("a") as file:
            file.write(FIND + "".join(PEER.format(number=number, name=node.node_name)
                                      for number, node in enumerate(nodes, 1)))

    def close(self):
        if self._first:
            self._epmd = None
        super().close()


class RabbitMQCluster:
    def __init__(self):
        first = Node()
        self.servers = [first, *(Node(first) for _ in range(SIZE - 1))]
        for server in self.servers:
            server.know(self.servers)
        self._started = contextlib.ExitStack()

    def __enter__(self):
        for server in self.servers:
            self._started.callback(server.close)
        for server in self.servers:
            server.start()
        return self

    def __exit__(self, *_):
        self._started.close()

    @property
    def url(self):
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"amqp://{hosts}?queues=quorum"

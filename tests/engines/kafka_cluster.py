"""A private Kafka of three brokers, each of which is also a controller. Topics have three replicas, two of which must have
a message before it is confirmed. Always real: without Java, Maven or the jars, Unavailable is raised."""

import concurrent.futures
import contextlib

from .kafka import SHORT_SESSION_MS, Broker, new_cluster_id
from .ports import Port

SIZE = 3
# What is written twice in the file counts the second time.
REPLICATED = """\
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
"""


class Node(Broker):
    def __init__(self, number, controllers, cluster):
        self._number, self._controllers, self._cluster = number, controllers, cluster
        super().__init__(None, SHORT_SESSION_MS, ())

    def _write_files(self, session_ms, ways):
        super()._write_files(session_ms, ways)
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(self._controllers, 1))
        with self._properties.open("a") as file:
            file.write(REPLICATED.format(number=self._number, voters=voters, broker=self.port,
                                         controller=self._controllers[self._number - 1]))

    def _cluster_id(self):
        return self._cluster


class KafkaCluster:
    def __init__(self):
        self._resources = contextlib.ExitStack()
        controllers = [self._resources.enter_context(Port()).number for _ in range(SIZE)]
        cluster = new_cluster_id()
        self.servers = [Node(number, controllers, cluster) for number in range(1, SIZE + 1)]

    def __enter__(self):
        for server in self.servers:
            self._resources.callback(server.close)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.start(), self.servers))
        return self

    def __exit__(self, *_):
        self._resources.close()

    @property
    def url(self):
        return "kafka://" + ",".join(server.address for server in self.servers)

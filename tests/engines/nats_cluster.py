"""A private NATS cluster of three servers with JetStream."""

import contextlib

from .nats import CONFIG, Nats
from .ports import Port

SIZE = 3
CLUSTERED = CONFIG + """\
server_name: {name}
cluster {{
    name: quipu
    listen: "127.0.0.1:{port}"
    routes: [{routes}]
}}
"""


class NatsCluster:
    def __init__(self, kind=Nats):
        self._resources = contextlib.ExitStack()
        ports = [self._resources.enter_context(Port()).number for _ in range(SIZE)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers = [kind(CLUSTERED.format(name=f"n{number}", port=port, routes=routes))
                        for number, port in enumerate(ports, 1)]

    def __enter__(self):
        for server in self.servers:
            self._resources.enter_context(server)
        return self

    def __exit__(self, *_):
        self._resources.close()

    @property
    def url(self):
        """Streams that Quipu creates have a replica on each server."""
        return "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers) + "?replicas=3"

"""Ports of loopback that nobody else gets.

A port is held by a socket that is bound to it and never listens. The kernel then hands it to no one: neither to a
socket that binds to any port, nor to one that connects. A server that names the port and sets SO_REUSEADDR, as all of
ours do, may listen on it all the same, and may do so again after it was killed.
"""

import socket


class Port:
    """A free port, held until close(). `number` is what a server is told."""

    def __init__(self):
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.number = self._holder.getsockname()[1]

    def close(self):
        self._holder.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

"""What all private servers have in common: a process with ports and a folder of its own."""

import contextlib
import shutil
import signal
import socket
import tempfile

from .ports import Port
from .process import Process


class Unavailable(Exception):
    """The server's programs are not on this machine; the text says which."""


class Server(Process):
    """The ports and the data stay the same when the server is stopped or killed and started again.

    A subclass is a Process whose constructor calls this one and then new_port().
    """

    name = "server"

    def __init__(self, folder=None):
        super().__init__(tempfile.mkdtemp(prefix=f"quipu-{self.name}-", dir=folder))
        self._ports = contextlib.ExitStack()

    def new_port(self):
        """A port that is this server's until close()."""
        return self._ports.enter_context(Port()).number

    def stop(self):
        """An orderly end, also of a frozen server. Does nothing if the server does not run."""
        self.thaw()
        self._end(signal.SIGTERM)

    def close(self):
        """Ends the server whatever its state, and removes its data."""
        self._end(signal.SIGKILL)
        self._ports.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


def exchange(port, request=b"", size=64):
    """What a server says to the first bytes of a client, empty if it does not answer within a moment."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(request)
        return connection.recv(size)
    return b""

"""Crowds of event streams: thousands at once, each on a socket of its own."""

import contextlib
import resource
import selectors

from .http import dial, render, reset_on_close
from .waiting import wait_until


class Crowd:
    """A stream for each of `targets`, which remembers its last event.

    `event` is a regular expression for one event. Its first group is the version, which only grows; the second, if
    there is one, is a value."""

    def __init__(self, port, targets, event):
        self._event = event
        self._selector = selectors.DefaultSelector()
        self._unread = {}  # by socket: bytes that are not a whole event yet
        self.version, self.value = {}, {}  # by socket
        self.ended = set()
        for target in targets:
            client = dial(port)
            client.sendall(render("GET", target))
            client.setblocking(False)
            self._selector.register(client, selectors.EVENT_READ)
            self._unread[client] = b""

    @property
    def sockets(self):
        """Returns the sockets in the order of the targets."""
        return list(self._unread)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self._unread:
            reset_on_close(client)
            client.close()
        self._selector.close()

    def read_until(self, condition, what):
        def has_read():
            for key, _ in self._selector.select(0.1):
                self._read(key.fileobj)
            return condition()

        wait_until(has_read, what, interval=0)

    def _read(self, client):
        try:
            data = client.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.ended.add(client)
            self._selector.unregister(client)
        self._unread[client] += data
        end = 0
        for event in self._event.finditer(self._unread[client]):
            version, *value = map(int, event.groups())
            assert version > self.version.get(client, -1), "a value went back"
            self.version[client] = version
            self.value[client] = value[0] if value else version
            end = event.end()
        self._unread[client] = self._unread[client][end:]

    def all_at(self, value):
        """Returns whether the last event of every stream has this value, or this version if events have no value."""
        return len(self.value) == len(self._unread) and set(self.value.values()) <= {value}


@contextlib.contextmanager
def room_for(count):
    """Returns how many of `count` streams are possible while the block runs: each needs a file descriptor on both
    sides."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield min(count, hard - 500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

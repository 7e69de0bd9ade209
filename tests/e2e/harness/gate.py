"""A door in front of a server's port: while it is shut, the server is away for those who come through it.

A broker that takes many seconds to start can so be away for a moment. What the server itself has to survive, a stop or
a kill, needs the server.
"""

import contextlib
import selectors
import socket
import threading


class Gate:
    """Forwards connections to a port of this machine. Shut, it refuses new ones and has closed those that there were."""

    def __init__(self, port):
        self._target = port
        self._lock = threading.Lock()
        self._wires = set()  # both sockets of every connection
        self._listener = None
        self._reserved = socket.socket()  # bound and never listening: nobody else gets the port while the gate is shut
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = self._reserved.getsockname()[1]
        self.open()

    def open(self):
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self):
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        with self._lock:
            wires, self._wires = self._wires, set()
        for wire in wires:
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def away(self):
        self.shut()
        try:
            yield
        finally:
            self.open()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shut()
        self._reserved.close()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._carry, args=(listener, client), daemon=True).start()

    def _carry(self, listener, client):
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            with self._lock:
                if listener is not self._listener or listener.fileno() < 0:
                    return  # it was shut meanwhile
                self._wires |= {client, server}
            try:
                forward(client, server)
            finally:
                with self._lock:
                    self._wires -= {client, server}


def forward(one, other):
    """Carries bytes both ways until one side ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for ready, _ in selector.select():
                data = ready.fileobj.recv(65536)
                if not data:
                    return
                ready.data.sendall(data)

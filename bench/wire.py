"""A proxy between a client and its server that counts how often the client had to wait for an answer."""

import contextlib
import selectors
import socket
import threading

from servers import free_port


class Wire:
    """Carries connections to a server on this machine, on a port of its own. A turn is a round trip: the client sends
    something after the server has, or for the first time; but not if all it sends is `but`. `marks` counts how often
    the server sent `mark`.

    Something that is written at once and is too long for one packet may come in pieces and be answered in between, so
    there may be fewer round trips than turns, but never more."""

    def __init__(self, server_port, mark=None, but=None):
        self.server_port = server_port
        self.mark = mark
        self.but = but
        self.port = free_port()
        self.turns = 0
        self.marks = 0
        self.lock = threading.Lock()

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *exception):
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        with contextlib.suppress(OSError), client, selectors.DefaultSelector() as selector:
            with socket.create_connection(("127.0.0.1", self.server_port)) as server:
                for end, other in ((client, server), (server, client)):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(end, selectors.EVENT_READ, other)
                self.carry_both(selector, client)

    def carry_both(self, selector, client):
        last, tail = None, b""
        while True:
            for ready, _ in selector.select():
                data = ready.fileobj.recv(1 << 20)
                if not data:
                    return
                ready.data.sendall(data)
                is_client = ready.fileobj is client
                if not is_client and self.mark:
                    tail = self.count_marks(tail + data)
                if is_client and last is not client and data != self.but:
                    with self.lock:
                        self.turns += 1
                last = ready.fileobj

    def count_marks(self, text):
        """Returns the end of `text`, which may be the beginning of a mark."""
        with self.lock:
            self.marks += text.count(self.mark)
        return text[len(text) - len(self.mark) + 1:] if len(text) >= len(self.mark) else text

"""A pooler in front of PostgreSQL tells its client itself that it has lost the server, as PgBouncer does."""

import contextlib
import socket
import struct
import threading
import urllib.parse

import pytest

from harness.counts import new_id
from harness.stores import PostgresStore

READY, COMPLETE, ERROR = b"Z", b"C", b"E"
LOST = b"SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0"


class Pooler:
    """Passes on what both sides say. With `crash` set, the next UPDATE of a client is its last: PostgreSQL carries it out, but
    instead of the result, the client is told that the server has crashed, and the connection ends."""

    def __init__(self, target):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.crash = threading.Event()
        self.crashed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._target)
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    @staticmethod
    def _pass_on(client, server):
        with contextlib.suppress(OSError):
            while piece := client.recv(65536):
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server, client):
        hides = False
        with contextlib.suppress(OSError, EOFError), server, client, server.makefile("rb") as messages:
            while True:
                kind, body = read_message(messages)
                hides = hides or kind == COMPLETE and body.startswith(b"UPDATE") and self.crash.is_set()
                if hides and kind == READY:
                    self.crash.clear()
                    client.sendall(ERROR + struct.pack("!I", len(LOST) + 4) + LOST)
                    self.crashed.set()
                    return
                if not hides:
                    client.sendall(kind + struct.pack("!I", len(body) + 4) + body)


def read_message(messages):
    head = messages.read(5)
    if len(head) < 5:
        raise EOFError
    return head[:1], messages.read(struct.unpack("!I", head[1:])[0] - 4)


@pytest.fixture
def pooler(database):
    address = urllib.parse.urlsplit(database.url)
    made = Pooler((address.hostname, address.port))
    yield made
    made.close()


class PooledStore(PostgresStore):
    def __init__(self, database, directory, port):
        super().__init__(database, directory)
        url = urllib.parse.urlsplit(database.url)
        self._url = url._replace(netloc=f"{url.username}@127.0.0.1:{port}", query="sslmode=disable").geturl()

    def arguments(self):
        _, _, *rest = super().arguments()
        return ["--store", self._url, *rest]


def test_an_increase_whose_result_a_pooler_has_lost_is_not_carried_out_again(serve, client, database, pooler, tmp_path):
    store = PooledStore(database, tmp_path, pooler.port)
    counts = client(serve(store, "--roles", "counts").wait_ready())
    item = new_id()
    assert counts.create(item).status == 201
    assert counts.increase(item).status == 200
    pooler.crash.set()
    answer = counts.increase(item)
    assert pooler.crashed.is_set()
    assert (answer.status, answer.code) == (503, "OUTCOME_UNKNOWN")
    assert store.value(item) == 2

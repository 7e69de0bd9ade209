"""A private Redis (of tests/engines), python3-redis to look into it, and a tap on its wire."""

import contextlib
import selectors
import socket
import threading

import redis

from engines import redis as engine
from engines.waiting import HANG_S


def hash_key(user):
    return f"RateLimiterCache:{user}"


class Redis(engine.Redis):
    @contextlib.contextmanager
    def client(self):
        with redis.Redis(port=self.port, decode_responses=True, socket_timeout=HANG_S) as client:
            yield client

    def do(self, *command):
        with self.client() as client:
            return client.execute_command(*command)

    def hash(self, user):
        """Returns the user's hash, or {} if there is none."""
        with self.client() as client:
            return client.hgetall(hash_key(user))

    def ttl_ms(self, user):
        with self.client() as client:
            return client.pttl(hash_key(user))

    def put_hash(self, user, fields, ttl_ms):
        """Writes a hash as it would be after a restore."""
        with self.client() as client, client.pipeline() as pipeline:
            pipeline.delete(hash_key(user))
            pipeline.hset(hash_key(user), mapping=fields)
            pipeline.pexpire(hash_key(user), ttl_ms)
            pipeline.execute()

    def keys(self):
        with self.client() as client:
            return set(client.keys("*"))

    def calls(self):
        """Returns how often each command has run since the start, including those of scripts."""
        with self.client() as client:
            return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in client.info("commandstats").items()}


class Tap:
    """A proxy in front of Redis, at which a test can stop one request, do something, and let it pass.

    `hold(match, action)`: before the first bytes of a client for which `match` is true go on to Redis, `action`
    runs."""

    def __init__(self, port):
        self._redis_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._held = None
        self.fired = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def hold(self, match, action):
        self._held = (match, action)

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client):
        with contextlib.suppress(OSError), client, selectors.DefaultSelector() as selector:
            with socket.create_connection(("127.0.0.1", self._redis_port)) as server:
                selector.register(client, selectors.EVENT_READ, server)
                selector.register(server, selectors.EVENT_READ, client)
                while True:
                    for ready, _ in selector.select():
                        data = ready.fileobj.recv(65536)
                        if not data:
                            return
                        if ready.fileobj is client:
                            self._look_at(data)
                        ready.data.sendall(data)

    def _look_at(self, data):
        held = self._held
        if held is not None and held[0](data):
            self._held = None
            held[1]()
            self.fired.set()

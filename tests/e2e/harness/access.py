"""Servers of dialogs and counters that check users' tokens, and API keys."""

import signal

from .keys import KeyFile
from .tokens import Issuer, User, bearer
from .unread import SqliteUnread, Unread, new_user
from .waiting import wait_until


class Place:
    """A server that checks tokens of `issuer`, and keys."""

    def __init__(self, server, issuer, internal_key, unread):
        self.server = server
        self.issuer = issuer
        self.internal_key = internal_key
        self.unread = unread

    def user(self, name=None, **claims):
        return User(self.unread, self.issuer, name or new_user(), **claims)

    def reload(self):
        return reload(self.server)


def reload(server):
    """SIGHUP, and what the log says of it."""
    before = server.log_text().count("SIGHUP")
    server.signal(signal.SIGHUP)
    wait_until(lambda: server.log_text().count("SIGHUP") > before, "SIGHUP is in the log")
    return [line for line in server.log_text().splitlines() if "SIGHUP" in line][-1]


class Places:
    """Opens places and closes their clients: `open_place("ES256", "--jwt-leeway", "0s")`."""

    def __init__(self, serve, binary, directory, openapi):
        self._serve, self._binary, self._directory, self._openapi = serve, binary, directory, openapi
        self._clients = []

    def __call__(self, algorithm, *arguments):
        issuer, keys = Issuer(self._directory, algorithm), KeyFile(self._binary, self._directory / "api-keys")
        internal_key = keys.new("ops", "internal").shown
        stack = SqliteUnread(self._directory)
        server = self._serve(stack, *issuer.arguments(), "--api-keys", keys.path, *arguments)
        self._clients.append(Unread(server.port, self._openapi))
        return Place(server, issuer, internal_key, self._clients[-1])

    def close(self):
        for client in self._clients:
            client.close()


def stream_of(user, token=None, prefix=""):
    return f"{prefix}/counters/user/{user}/stream" + (f"?access_token={token}" if token else "")


def metric(place, name):
    samples = place.server.metrics(bearer(place.internal_key))
    return sum(value for sample, value in samples.items() if sample.split("{")[0] == name)

"""A private NATS server with JetStream."""

import os
import shutil

from .server import Server, Unavailable, exchange

# More than the port's largest message; the server's default is 1 MB with headers.
CONFIG = "max_payload: 4MB\n"


class Nats(Server):
    name = "nats"

    def __init__(self, config=CONFIG):
        self._program = shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not self._program:
            raise Unavailable("NATS is not installed (no nats-server)")
        super().__init__()
        self.port = self.new_port()
        self._data = self.directory / "data"
        self._config = self.directory / "config"
        self._config.write_text(config)

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def _command(self):
        return [self._program, "-c", str(self._config), "-a", "127.0.0.1", "-p", str(self.port), "-js",
                "-sd", str(self._data), "-l", str(self.log)]

    def _answers(self):
        """The server greets with INFO; it listens only after JetStream has been read from the disk."""
        return exchange(self.port).startswith(b"INFO ")

    def wipe(self):
        """Removes all streams. The server must not run."""
        assert not self.running
        shutil.rmtree(self._data, ignore_errors=True)

    def copy_messages(self):
        """Copies the messages of all streams, but not what consumers have read of them. The server must not run."""
        assert not self.running
        for folder in self._data.rglob("msgs"):
            shutil.copytree(folder, self.directory / "copy" / folder.relative_to(self._data))

    def put_messages_back(self):
        """The streams become as they were copied. The server must not run."""
        assert not self.running
        for folder in self._data.rglob("msgs"):
            shutil.rmtree(folder)
            shutil.copytree(self.directory / "copy" / folder.relative_to(self._data), folder)

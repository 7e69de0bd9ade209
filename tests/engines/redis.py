"""A private Redis. Nothing is saved unless a test says SAVE."""

import shutil

from .server import Server, Unavailable, exchange


class Redis(Server):
    name = "redis"

    def __init__(self, *options):
        self._program = shutil.which("redis-server")
        if not self._program:
            raise Unavailable("Redis is not installed (no redis-server)")
        super().__init__()
        self._options = options
        self.port = self.new_port()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def _command(self):
        return [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory),
                "--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", str(self.log), *self._options]

    def _answers(self):
        """Any answer but LOADING will do: a server with a password says NOAUTH."""
        answer = exchange(self.port, b"PING\r\n")
        return answer != b"" and not answer.startswith(b"-LOADING")

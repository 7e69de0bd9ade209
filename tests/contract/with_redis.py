#!/usr/bin/python3
"""A private Redis on a free port with temporary data; and a command run with it.

with_redis.py COMMAND [ARGUMENT...]

The command finds the server in QUIPU_CONTRACT_CACHE (a redis:// URL) and QUIPU_CONTRACT_REDIS_PID. Exits with the
command's code, or with 77 (meson: skipped) where Redis cannot be had. Other tests use the class.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
START_TIMEOUT_S = 15


class Unavailable(Exception):
    """Redis is not on this machine."""


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Redis:
    """The port stays the same when the server is stopped and started again; nothing is saved unless told (SAVE)."""

    def __init__(self, *options):
        self._program = shutil.which("redis-server")
        if not self._program:
            raise Unavailable("Redis is not installed (no redis-server)")
        self._options = options
        self._process = None
        self.port = _free_port()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="quipu-redis-"))
        self.log = self.directory / "log"

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self._process.pid if self._process else None

    def start(self):
        """Returns when the server answers."""
        assert self._process is None, "Redis runs already"
        self._process = subprocess.Popen(
            [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory),
             "--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", str(self.log), *self._options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() >= deadline:
                log = self.log.read_text(errors="replace") if self.log.exists() else ""
                self.kill()
                raise RuntimeError(f"redis-server does not start:\n{log[-2000:]}")
            time.sleep(0.01)
        return self

    def _answers(self):
        """Any answer but LOADING will do: a server with a password says NOAUTH."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                answer = connection.recv(64)
        except OSError:
            return False
        return answer != b"" and not answer.startswith(b"-LOADING")

    def stop(self):
        """An orderly end, also of a paused server. Nothing happens where none runs."""
        self.resume()
        self._end(signal.SIGTERM)

    def kill(self):
        """A crash."""
        self._end(signal.SIGKILL)

    def _end(self, how):
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def pause(self):
        """The server is silent from now on; its connections stay, and new ones are taken by the kernel."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self):
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def close(self):
        """Ends the server however it is, and removes its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


def main(command):
    if not command:
        sys.exit(__doc__)
    # Being ended must end the server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        server = Redis()
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    try:
        server.start()
        found = {"QUIPU_CONTRACT_CACHE": server.url, "QUIPU_CONTRACT_REDIS_PID": str(server.pid)}
        return subprocess.run(command, env={**os.environ, **found}, check=False).returncode
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

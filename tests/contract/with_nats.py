#!/usr/bin/python3
"""A private NATS server with JetStream on a free port with temporary data; and a command run with it.

with_nats.py COMMAND [ARGUMENT...]

The command finds the server in QUIPU_CONTRACT_BUS (a nats:// URL). Exits with the command's code, or with 77 (meson:
skipped) where NATS cannot be had. Other tests use the class.
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

# More than the port's largest message; the server's default is 1 MB with headers.
CONFIG = "max_payload: 4MB\n"


class Unavailable(Exception):
    """NATS is not on this machine."""


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nats:
    """The port and the data stay the same when the server is stopped and started again; wipe() removes the data."""

    def __init__(self, config=CONFIG):
        self._program = shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not self._program:
            raise Unavailable("NATS is not installed (no nats-server)")
        self._process = None
        self.port = _free_port()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="quipu-nats-"))
        self.log = self.directory / "log"
        self._data = self.directory / "data"
        self._config = self.directory / "config"
        self._config.write_text(config)

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self._process.pid if self._process else None

    def start(self):
        """Returns when the server answers."""
        assert self._process is None, "NATS runs already"
        self._process = subprocess.Popen(
            [self._program, "-c", str(self._config), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd",
             str(self._data), "-l", str(self.log)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() >= deadline:
                log = self.log.read_text(errors="replace") if self.log.exists() else ""
                self.kill()
                raise RuntimeError(f"nats-server does not start:\n{log[-2000:]}")
            time.sleep(0.01)
        return self

    def _answers(self):
        """The server greets with INFO; it listens only after JetStream has been read from the disk."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(64).startswith(b"INFO ")
        except OSError:
            return False

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

    def wipe(self):
        """All streams are gone. The server must not run."""
        assert self._process is None
        shutil.rmtree(self._data, ignore_errors=True)

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
        server = Nats()
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    try:
        server.start()
        found = {**os.environ, "QUIPU_CONTRACT_BUS": server.url}
        return subprocess.run(command, env=found, check=False).returncode
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What all private servers have in common: a process that is started, watched, frozen and ended by its pid."""

import contextlib
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

from .waiting import HANG_S, wait_until


class Unavailable(Exception):
    """The server's programs are not on this machine; the text says which."""


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def free_port():
    return free_ports(1)[0]


def tail(path, size=4000):
    return path.read_text(errors="replace")[-size:] if path.exists() else ""


class Server:
    """The port and the data stay the same when the server is stopped or killed and started again.

    A subclass has `name`, `_command()` and `_answers()`, and sets `port` and `log` after this constructor.
    """

    name = "server"
    environment = None

    def __init__(self, folder=None):
        self._process = None
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"quipu-{self.name}-", dir=folder))
        self.log = self.directory / "log"

    @property
    def pid(self):
        return self._process.pid if self._process else None

    def start(self):
        """Returns when the server answers."""
        assert self._process is None, f"{self.name} runs already"
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command(), env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, cwd=self.directory, start_new_session=True)
        try:
            wait_until(lambda: self._process.poll() is not None or self._answers(), f"{self.name} answers")
            ended = self._process.poll()
        except AssertionError:
            ended = "no answer"
        if ended is not None:
            words = tail(self.directory / "output") + self.log_tail()
            self.kill()
            raise RuntimeError(f"{self.name} does not start ({ended}):\n{words}")
        return self

    def stop(self):
        """An orderly end, also of a frozen server. Does nothing if the server does not run."""
        self.thaw()
        self._end(signal.SIGTERM)

    def kill(self):
        """A crash."""
        self._end(signal.SIGKILL)

    def _end(self, how):
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def freeze(self):
        """The server is silent from now on; its connections stay, and the kernel accepts new ones."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self):
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self):
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def close(self):
        """Ends the server whatever its state, and removes its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def log_tail(self, size=4000):
        return tail(self.log, size)
